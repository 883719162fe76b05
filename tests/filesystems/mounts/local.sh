# Filesystems of one host: two mounts are one filesystem bound to two places; or a disk that the trial mounts.

packages() {
  case $KIND in
    xfs | xfs-power) echo xfsprogs ;;
    btrfs | small-quota) echo btrfs-progs ;;
    exfat) echo exfatprogs exfat-fuse ;;
    tmpfs | overlay) ;;
    *) echo e2fsprogs ;;
  esac
}

commands() {
  case $KIND in
    xfs) echo mkfs.xfs ;;
    xfs-power) echo mkfs.xfs losetup ;;
    btrfs) echo mkfs.btrfs ;;
    small-quota) echo mkfs.btrfs btrfs ;;
    exfat) echo mkfs.exfat mount.exfat-fuse losetup /dev/fuse ;;
    tmpfs | overlay) ;;
    ext4-power) echo mkfs.ext4 losetup ;;
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

# Makes a filesystem in memory, whose device is $DEVICE. The loop device is mounted again and again, so what
# keeps it is that this process has it open.
power() {
  mkdir "$W/memory"
  mount -t tmpfs -o size=400M memory "$W/memory"
  disk memory/image 300M
  "$@" "$W/memory/image"
  DEVICE=$(losetup --find --show "$W/memory/image")
  exec 9<"$DEVICE"
  losetup -d "$DEVICE"
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
    small-quota)
      image 256M mkfs.btrfs -q -f
      btrfs quota enable "$A"
      btrfs qgroup limit 24M "$A"
      ;;
    read-only) image 256M mkfs.ext4 -q -F ;;
    ext4-power) power mkfs.ext4 -q -F; return ;;
    xfs-power) power mkfs.xfs -q -f; return ;;
  esac
  mount --bind "$A" "$B"
  [ "$KIND" != read-only ] || mount -o remount,bind,ro "$B"
}
