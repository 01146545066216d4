set -e
mount -t tmpfs -o mode=0755,size=1m opsassay /mnt
for place in /usr /bin /sbin /lib /lib32 /lib64 "$1" "$2"; do
  if [ -L "$place" ]; then cp -P "$place" "/mnt$place"
  elif [ -d "$place" ]; then mkdir -p "/mnt$place"; mount -o bind,ro "$place" "/mnt$place"; fi
done
mkdir -p /mnt/etc /mnt/dev/shm "/mnt$3"
echo 'server:x:PRIVATE_UID:PRIVATE_UID::/:/bin/false' > /mnt/etc/passwd
mount -t tmpfs -o mode=1777,size=256m opsassay /mnt/dev/shm
for name in null zero random urandom; do touch /mnt/dev/$name; mount --bind /dev/$name /mnt/dev/$name; done
mount --bind "$3" "/mnt$3"
[ -z "$4" ] || mount -t tmpfs -o "mode=0700,uid=PRIVATE_UID,gid=PRIVATE_UID,size=$4" opsassay "/mnt$3"
[ -z "$2" ] || export LD_LIBRARY_PATH="$2"
shift 4
exec chroot /mnt setpriv --reuid=PRIVATE_UID --regid=PRIVATE_UID --clear-groups --no-new-privs --pdeathsig KILL "$@"
