# GlusterFS: a server, bricks on xfs, and two clients.

packages() { echo glusterfs-server glusterfs-client xfsprogs iproute2 fuse3; }
commands() { echo glusterd gluster mount.glusterfs mkfs.xfs ip /dev/fuse; }

start() {
  local address=10.77.0.1 volume=trials replicas=1 bricks=() replica number mount
  [ "$KIND" != gluster-replica3 ] || replicas=3
  network $address
  # The host's own volumes stay out of this.
  mount -t tmpfs state /var/lib/glusterd
  mount -t tmpfs logs /var/log/glusterfs
  for ((number = 0; number < replicas; number++)); do
    disk "brick$number.image" 1G
    mkfs.xfs -q -f "$W/brick$number.image"
    mkdir "$W/brick$number"
    mount -o loop "$W/brick$number.image" "$W/brick$number"
    mkdir "$W/brick$number/brick"
    bricks+=("$address:$W/brick$number/brick")
  done
  glusterd
  within 200 gluster --mode=script volume info
  replica=()
  [ $replicas = 1 ] || replica=(replica $replicas)
  gluster --mode=script volume create $volume "${replica[@]}" transport tcp "${bricks[@]}" force
  gluster --mode=script volume start $volume
  for mount in "$A" "$B"; do
    mount -t glusterfs "$address:/$volume" "$mount"
  done
}
