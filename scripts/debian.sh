# Sourced by scripts that need a package of Debian: it is unpacked into a folder, and nothing is installed or started.
# The caller has a function `say`.

# unpack RELEASE FOLDER PACKAGE…: fails where there is no Debian 12 to ask, or the packages cannot be had. The folder is there
# with all of them, or not at all.
unpack() {
    release=$1 folder=$2
    shift 2
    command -v apt-get >/dev/null || return 1
    # From where this machine's packages come.
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
        sed -n 's/ bookworm$//p' | head -n 1)
    [ -n "$site" ] || return 1
    say "fetching $* of Debian's $release into ${folder#"$repository/"}"
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/unpacked"
    echo "deb $site $release main" >"$work/sources"
    apt() {
        apt-get -q -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/dev/null \
            -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::Status=/dev/null \
            -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User="$(id -un)" "$@"
    }
    {
        apt update && (cd "$work" && apt download "$@") &&
            for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/unpacked" || return 1; done
    } </dev/null >&2 || return 1
    mkdir -p "$(dirname "$folder")"
    mv "$work/unpacked" "$folder"
    rm -rf "$work"
}
