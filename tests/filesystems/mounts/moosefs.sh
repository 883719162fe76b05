# MooseFS: a master, a chunk server, and two clients.

packages() { echo moosefs-master moosefs-chunkserver moosefs-client iproute2 fuse3; }
commands() { echo mfsmaster mfschunkserver mfsmount ip /dev/fuse; }

start() {
  # The chunk server refuses the loopback's own address.
  local address=10.77.0.1 mount
  network $address
  mkdir "$W"/{master,chunks,state,conf}
  printf 'MFSM NEW' >"$W/master/metadata.mfs"
  cat >"$W/conf/master" <<CONF
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $W/master
EXPORTS_FILENAME = $W/conf/exports
TOPOLOGY_FILENAME = $W/conf/topology
MATOML_LISTEN_HOST = $address
MATOCS_LISTEN_HOST = $address
MATOCL_LISTEN_HOST = $address
CONF
  cat >"$W/conf/chunks" <<CONF
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = $W/state
HDD_CONF_FILENAME = $W/conf/disks
MASTER_HOST = $address
CSSERV_LISTEN_HOST = $address
CONF
  echo '* / rw,alldirs,admin,maproot=0:0' >"$W/conf/exports"
  : >"$W/conf/topology"
  echo "$W/chunks" >"$W/conf/disks"
  mfsmaster -c "$W/conf/master" start
  mfschunkserver -c "$W/conf/chunks" start
  for mount in "$A" "$B"; do
    within 100 mfsmount -H $address "$mount"
  done
  mfssetgoal -r 1 "$A"
  # Writing works once the chunk server has registered.
  within 300 sh -c "echo x > $A/first && cat $A/first"
  rm "$A/first"
}
