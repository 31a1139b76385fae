# Functions for scripts that need packages of Debian. They unpack a package into a folder, and install and start nothing.
# The script that sources this file must define a function `log`.

# unpack RELEASE FOLDER PACKAGE…: unpacks the packages into the folder. Fails if this is not Debian 12, or a download fails.
# The folder then does not exist.
unpack() {
    release=$1 folder=$2
    shift 2
    command -v apt-get >/dev/null || return 1
    # The repository from which this machine gets its packages.
    site=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
        sed -n 's/ bookworm$//p' | head -n 1)
    [ -n "$site" ] || return 1
    log "fetching $* from Debian $release into ${folder#"$repository/"}"
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
