# CephFS: one daemon of each kind, and two FUSE clients.

packages() { echo ceph-mon ceph-osd ceph-mds ceph-mgr ceph-fuse ceph-common iproute2; }
commands() { echo ceph-mon ceph-osd ceph-mds ceph-mgr ceph-fuse ceph ip /dev/fuse; }

ask() { timeout 40 ceph -c "$W/ceph.conf" "$@"; }
is_up() { ask mds stat | grep -q up:active; }

configure() {
  cat >"$W/ceph.conf" <<CONF
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = $1
public addr = $1
cluster addr = $1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
run dir = $W/run
admin socket = $W/run/\$cluster-\$name.\$pid.asok
pid file = $W/run/\$name.\$pid.pid
log file = $W/run/\$name.log
keyring = $W/keyring
osd objectstore = bluestore
bluestore block size = 4294967296
mon data avail crit = 1
ms bind msgr1 = true
[mon.a]
mon data = $W/mon
mon addr = $1
[mgr.x]
mgr data = $W/mgr
mgr modules =
[osd.0]
osd data = $W/osd
[mds.a]
mds data = $W/mds
# As it is by default, 5 s, so late may a client see what another has made.
mds tick interval = 0.5
CONF
}

start() {
  local address=10.77.0.1 uuid mount conf=$W/ceph.conf keys=$W/keyring
  network $address
  mkdir "$W"/{mon,mgr,osd,mds,run}
  configure $address
  ceph-authtool --create-keyring "$keys" --gen-key -n mon. --cap mon 'allow *'
  ceph-authtool "$keys" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
  monmaptool --create --fsid "$(sed -n 's/^fsid = //p' "$conf")" --addv a "[v2:$address:3300,v1:$address:6789]" "$W/monmap"
  ceph-mon -c "$conf" --mkfs -i a --monmap "$W/monmap" --keyring "$keys"
  ceph-mon -c "$conf" -i a
  ceph-mgr -c "$conf" -i x
  uuid=$(cat /proc/sys/kernel/random/uuid)
  ask osd new "$uuid" 0
  truncate -s 4G "$W/osd/block"
  timeout 60 ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$uuid"
  ceph-osd -c "$conf" -i 0
  ceph-mds -c "$conf" -i a
  ask osd pool create data 8
  ask osd pool create metadata 8
  ask fs new trials metadata data
  within 300 is_up
  for mount in "$A" "$B"; do
    timeout 60 ceph-fuse -c "$conf" --id admin "$mount"
  done
}
