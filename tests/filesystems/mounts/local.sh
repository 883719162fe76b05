# Filesystems of one host: two mounts are one filesystem bound to two places.

packages() {
  case $KIND in
    xfs) echo xfsprogs ;;
    btrfs) echo btrfs-progs ;;
    exfat) echo exfatprogs exfat-fuse ;;
    tmpfs | overlay) ;;
    *) echo e2fsprogs ;;
  esac
}

commands() {
  case $KIND in
    xfs) echo mkfs.xfs ;;
    btrfs) echo mkfs.btrfs ;;
    exfat) echo mkfs.exfat mount.exfat-fuse losetup /dev/fuse ;;
    tmpfs | overlay) ;;
    *) echo mkfs.ext4 ;;
  esac
}

# Makes a filesystem in a file, and mounts it; the loop device goes with the mount.
image() {
  disk image "$1"
  shift
  "$@" "$W/image" >/dev/null
  mount -o loop "$W/image" "$A"
}

# Where the kernel has no exFAT. Detached while it is in use, the loop device goes when the mount does.
exfat_by_fuse() {
  local loop
  loop=$(losetup --find --show "$W/image")
  mount.exfat-fuse "$loop" "$A"
  losetup -d "$loop"
}

start() {
  case $KIND in
    ext4) image 1G mkfs.ext4 -q -F ;;
    xfs) image 1G mkfs.xfs -q -f ;;
    btrfs) image 1G mkfs.btrfs -q -f ;;
    tmpfs) mount -t tmpfs -o size=1G tmpfs "$A" ;;
    overlay)
      # Not on the host's own filesystem, which may be an overlay itself.
      mkdir "$W/layers"
      mount -t tmpfs -o size=1G layers "$W/layers"
      mkdir "$W"/layers/{lower,upper,work}
      mount -t overlay -o "lowerdir=$W/layers/lower,upperdir=$W/layers/upper,workdir=$W/layers/work" overlay "$A"
      ;;
    exfat)
      disk image 256M
      mkfs.exfat "$W/image"
      mount -t exfat -o loop "$W/image" "$A" 2>/dev/null || exfat_by_fuse
      ;;
    small-bytes) image 24M mkfs.ext4 -q -F ;;
    small-inodes) image 256M mkfs.ext4 -q -F -N 1024 ;;
    read-only) image 256M mkfs.ext4 -q -F ;;
  esac
  mount --bind "$A" "$B"
  [ "$KIND" != read-only ] || mount -o remount,bind,ro "$B"
}
