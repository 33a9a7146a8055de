#!/usr/bin/env bash
# Makes what is handed out of a version: `scripts/release.sh [FOLDER]`, by default target/release-VERSION.
#
#   runner_ml-VERSION-py3-none-*.whl        wheels, for glibc 2.17 (manylinux2014) and for musl (musllinux_1_2)
#   runner-VERSION-TARGET.tar.gz            program, manual, completions, licences
#   runner-VERSION-source.tar.gz            the sources, with their commit
#   runner-VERSION-TARGET.cdx.json          what the program is made of (CycloneDX)
#   runner-ml.rb                            a formula for Homebrew, which builds the sources
#   SHA256SUMS
#
# It needs Rust, git and Python 3.11 with network (or what TOOLS has): maturin and Zig, which links for old C libraries, come from Python's registry. A target whose
# standard library is not installed is left out with a message: `rustup target add TARGET` brings it.
#
#   TARGETS="x86_64-unknown-linux-gnu …"   what is built; otherwise this machine's processor with glibc and with musl. One of Windows has not been tried
#   RUNNER_DOWNLOADS=URL                   where the files will be, for the formula; without it there is no formula
#   TOOLS=FOLDER                           a virtual environment with maturin, ziglang and wheel that is there already
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(uname -m)
TARGETS=${TARGETS:-"$machine-unknown-linux-gnu $machine-unknown-linux-musl"}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
out=${1:-target/release-$version}
TOOLS=${TOOLS:-target/release-tools}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

if [ -n "$(git status --porcelain)" ]; then
    echo "warning: there are changes that are not committed: the program will say so in its version" >&2
fi
if [ ! -x "$TOOLS/bin/maturin" ]; then
    python3 -m venv "$TOOLS"
    "$TOOLS/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ziglang wheel
fi
TOOLS=$(cd "$TOOLS" && pwd)
export PATH=$TOOLS/bin:$PATH
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# An archive that is the same file whenever it is made of the same content.
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$1" | gzip -9n >"$out/$1.tar.gz.part"
    mv "$out/$1.tar.gz.part" "$out/$1.tar.gz"
}

built=""
for target in $TARGETS; do
    library=$(rustc --print target-libdir --target "$target" 2>/dev/null || true)
    if [ ! -d "$library" ]; then
        echo "left out: $target, whose standard library is not installed (rustup target add $target)" >&2
        continue
    fi
    program=${CARGO_TARGET_DIR:-target}/$target/dist/runner
    case $target in
    *-musl) platform=(--compatibility musllinux_1_2) ;;
    *-linux-*) platform=(--compatibility manylinux2014) ;;
    *-windows-*) platform=() program=$program.exe ;;
    *) platform=() ;;
    esac
    echo "== $target"
    maturin build --zig --locked --target "$target" "${platform[@]}" --out "$work/wheel-$target"
    wheel=$(ls "$work/wheel-$target"/*.whl)

    # The manual and the completions are written by the program itself. One that cannot run here has the texts of one that can.
    if "$program" man --out "$work/share" >/dev/null 2>&1; then
        :
    elif [ ! -d "$work/share" ]; then
        echo "left out: manual and completions of $target, whose program does not run here" >&2
        mkdir -p "$work/share"
    fi
    "$TOOLS/bin/python" -m wheel unpack --dest "$work/unpacked-$target" "$wheel" >/dev/null
    unpacked=$(ls -d "$work/unpacked-$target"/*)
    data="$unpacked/runner_ml-$version.data/data"
    mkdir -p "$data"
    cp -r "$work/share" "$data/share"
    "$TOOLS/bin/python" -m wheel pack --dest-dir "$out" "$unpacked" >/dev/null

    name=runner-$version-$target
    mkdir -p "$work/$name"
    cp "$program" README.md LICENSE-APACHE LICENSE-MIT "$work/$name/"
    cp -r "$work/share" "$work/$name/share"
    pack "$name"
    python3 scripts/sbom.py "$target" "$out/$name.cdx.json"
    built="$built $target"
done
if [ -z "$built" ]; then
    echo "nothing was built" >&2
    exit 1
fi

source=runner-$version-source
git archive --format=tar --prefix="$source/" HEAD | gzip -9n >"$out/$source.tar.gz.part"
mv "$out/$source.tar.gz.part" "$out/$source.tar.gz"

if [ -n "${RUNNER_DOWNLOADS:-}" ]; then
    sha=$(sha256sum "$out/$source.tar.gz" | cut -d' ' -f1)
    sed -e "s|@URL@|$RUNNER_DOWNLOADS/$source.tar.gz|" -e "s|@SHA256@|$sha|" -e "s|@VERSION@|$version|" packaging/runner-ml.rb.in >"$out/runner-ml.rb"
else
    echo "left out: the formula for Homebrew, as RUNNER_DOWNLOADS does not say where the files will be" >&2
fi

cd "$out"
# Those of this version alone, whatever else is in the folder.
find . -maxdepth 1 -type f \( -name "*$version*" -o -name 'runner-ml.rb' \) -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS.part
mv SHA256SUMS.part SHA256SUMS
echo "== $out"
ls -l
