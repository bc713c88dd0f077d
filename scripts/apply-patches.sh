#!/usr/bin/env bash
# Changes installed packages while the image is built: apply-patches.sh PATCHES PACKAGES. Each of the patches is
# called PACKAGE-VERSION-ERRAND.patch; one that is for another version, or does not fit, ends the build.
set -euo pipefail

readonly PATCHES=$1 PACKAGES=$2

for file in "$PATCHES"/*.patch; do
    meant=$(basename "$file" | cut -d - -f 1,2)
    if [ ! -d "$PACKAGES/$meant.dist-info" ]; then
        installed=$(basename "$PACKAGES/${meant%-*}"-[0-9]*.dist-info .dist-info)
        echo "$file is for $meant, and $installed is installed: see patches/README.md" >&2
        exit 1
    fi
    patch --directory "$PACKAGES" --strip 1 --fuzz 0 --forward --batch --no-backup-if-mismatch --reject-file - <"$file"
done
