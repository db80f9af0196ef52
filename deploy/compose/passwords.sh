#!/bin/sh
# For each user at the log a random password, in a folder of its own below the first argument; those that are there stay.
set -eu
for user in admin reader subscriber history audit archiver copies watcher scheduler scaler status; do
  file=$1/$user/password
  test ! -s "$file" || continue
  od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$file.new"
  chmod 0644 "$file.new"
  mv "$file.new" "$file"
done
