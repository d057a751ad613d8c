#!/usr/bin/env bash
# Installs what trainsys is built with: packages of Debian 12 or 13, no others.
#
# Run it as root. A run that finds everything installed does nothing and needs
# neither root nor network. Nothing is installed before all is downloaded.
# Exit code: 0 all is there, 2 it cannot be (the first line says why).
set -euo pipefail

packages=(
  bazel-bootstrap      # the build (brings a JDK)
  g++
  libtorch-dev
  libgloo-dev
  libopenblas0-pthread # libtorch's BLAS; the plain libblas3 is 7 times slower
  libtbb-dev
  libeigen3-dev
  libfmt-dev
  libcli11-dev
  nlohmann-json3-dev
  libgtest-dev
  libgmock-dev
  libbenchmark-dev
  relacy-dev           # model checker of the protocols' tests
  python3              # tools/mutate_orders
  iproute2             # hosts made of network namespaces, for tests
)

die() {
  echo "setup.sh: $*" >&2
  exit 2
}

# Prints those of the packages that are not installed.
missing_packages() {
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null |
      grep -qx installed || echo "$package"
  done
}

# Runs apt-get; what it says is shown only if it fails.
run_apt() {
  apt-get -q -y -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
    -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 </dev/null
}

# apt-get's own reason, then ours.
explain() {
  grep -E '^(E|W): ' "$log" | tail -n 3 >&2 || tail -n 3 "$log" >&2
  die "$*"
}

check_system() {
  # shellcheck disable=SC1091
  [ -r /etc/os-release ] && . /etc/os-release
  { [ "${ID:-}" = debian ] && command -v apt-get >/dev/null; } ||
    die "this is ${PRETTY_NAME:-not Debian}, and only Debian 12 and 13 have" \
      "the packages; use one of them (a container or chroot will do)"
  case ${VERSION_ID:-} in
    12 | 13) ;;
    *) echo "setup.sh: note: tried on Debian 12 and 13 only, this is" \
      "${PRETTY_NAME:-another}" >&2 ;;
  esac
  [ "$(id -u)" = 0 ] ||
    die "installing packages needs root: run 'sudo ./setup.sh', or ./setup.sh" \
      "as root (missing: ${missing[*]})"
  [ -z "$(dpkg --audit)" ] ||
    die "an earlier installation of packages was interrupted: run" \
      "'dpkg --configure -a', then this again"
}

if command -v dpkg-query >/dev/null; then
  mapfile -t missing < <(missing_packages)
else
  missing=("${packages[@]}")
fi
if [ ${#missing[@]} = 0 ]; then
  echo "setup.sh: everything is installed"
  exit 0
fi
check_system

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install=(install --no-install-recommends --no-remove)

echo "setup.sh: downloading ${missing[*]}"
# A list that cannot be fetched may be one that nobody needs: the download
# tells.
run_apt update || true
grep -E '^(W: Failed to fetch|E: )' "$log" | head -n 2 >&2 || true
run_apt "${install[@]}" --download-only "${missing[@]}" ||
  explain "cannot download the packages, nothing was installed: check the" \
    "network, the disk and apt's sources, then run it again"
echo "setup.sh: installing"
run_apt "${install[@]}" --no-download "${missing[@]}" ||
  explain "apt-get could not install what it had downloaded (see above):" \
    "mend that, then run it again"

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} = 0 ] || die "still missing after installing: ${missing[*]}"
echo "setup.sh: done"
