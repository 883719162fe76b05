# FUSE filesystems over a directory of the host.

packages() {
  case $KIND in
    rclone) echo rclone fuse3 ;;
    sshfs) echo sshfs openssh-server openssh-client iproute2 ;;
    *) echo bindfs ;;
  esac
}

commands() {
  echo /dev/fuse
  case $KIND in
    rclone) echo rclone fusermount3 ;;
    sshfs) echo sshfs sshd ip ;;
    *) echo bindfs ;;
  esac
}

start() {
  local mount
  mkdir "$W/source"
  [ "$KIND" != sshfs ] || serve
  for mount in "$A" "$B"; do
    case $KIND in
      # What an NFS client remembers, and for how long: attributes 3 s, names 30 s.
      bindfs-cached) bindfs -o attr_timeout=3,ac_attr_timeout=3,entry_timeout=30 "$W/source" "$mount" ;;
      # ... and absent names 30 s, which here, unlike on NFS, no opening of their directory makes it forget.
      bindfs-stale)
        bindfs -o attr_timeout=3,ac_attr_timeout=3,entry_timeout=30,negative_timeout=30 "$W/source" "$mount"
        ;;
      bindfs) bindfs "$W/source" "$mount" ;;
      rclone) rclone mount --daemon --config /dev/null "$W/source" "$mount" ;;
      # Its cache of listings would hide new names for 20 s, and R6 lists the marks.
      sshfs)
        sshfs -p 2222 -o dir_cache=no -o "IdentityFile=$W/key,UserKnownHostsFile=/dev/null" \
          -o StrictHostKeyChecking=no,LogLevel=ERROR "root@127.0.0.1:$W/source" "$mount"
        ;;
    esac
    within 100 mountpoint -q "$mount"
  done
}

serve() {
  network 10.77.0.1
  mkdir -p /run/sshd
  chmod 700 "$W"
  ssh-keygen -q -t ed25519 -N '' -f "$W/host"
  ssh-keygen -q -t ed25519 -N '' -f "$W/key"
  cat >"$W/sshd.conf" <<CONF
Port 2222
ListenAddress 127.0.0.1
HostKey $W/host
PidFile none
AuthorizedKeysFile $W/key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
Subsystem sftp internal-sftp
CONF
  "$(command -v sshd)" -f "$W/sshd.conf" -E "$W/sshd.log"
}
