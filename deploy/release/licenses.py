#!/usr/bin/env python3
"""Writes the licence texts of everything that the two programs contain: their crates, and the Rust standard library.

usage: licenses.py write TARGET FILE BINARY...  each BINARY is a release for the Rust target, such as x86_64-unknown-linux-gnu
       licenses.py check BINARY FILE...         each crate in BINARY is in FILE, which may be compressed with gzip
       licenses.py crates TARGET                each crate of Cargo.lock for TARGET has a licence text; for a change of a dependency
The crates of a release are in the binary itself (cargo-auditable). Their texts are in their sources, which cargo has downloaded.
"""

import gzip
import html
import json
import os
import re
import subprocess
import sys

from check import crates_of_binary

LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-_.][\w.-]+)?", re.I)
SOURCE_CODE = re.compile(r"\.(rs|c|cc|cpp|h|hpp|py|sh|toml|json|html)$", re.I)
NOT_CONTAINED = {"tests", "test", "benches", "examples", "fuzz", "target"}
# Crates without a licence file, and the licence under which the exporter uses them. The text of that licence is in
# LICENSE.
UNDER_APACHE = {"asn1-rs-impl": "MIT/Apache-2.0"}
HEADING = re.compile(r"(?m)^== (\S+) (\S+) \(.+\)$")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def output_of(*command):
    return subprocess.check_output(command, text=True, cwd=ROOT)


def packages(target):
    """The crates of Cargo.lock that are compiled for the target, without those of this repository: (name, version) -> package."""
    metadata = json.loads(
        output_of("cargo", "metadata", "--format-version=1", "--locked", "--all-features", f"--filter-platform={target}")
    )
    return {(package["name"], package["version"]): package for package in metadata["packages"] if package["source"]}


def texts_of(package):
    """The licence files of a crate and of the C code in it: path -> text."""
    top = os.path.dirname(package["manifest_path"])
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(set(folders) - NOT_CONTAINED)
        for name in sorted(files):
            path = os.path.join(folder, name)
            in_folder = re.fullmatch(r"licen[cs]es", os.path.basename(folder), re.I) and name.endswith(".txt")
            if (LICENCE_FILE.fullmatch(name) or in_folder) and not SOURCE_CODE.search(name):
                with open(path, encoding="utf-8", errors="replace") as file:
                    found[os.path.relpath(path, top)] = file.read()
    if package["license_file"] and not found:
        with open(os.path.join(top, package["license_file"]), encoding="utf-8") as file:
            found[package["license_file"]] = file.read()
    if not found and UNDER_APACHE.get(package["name"]) == package["license"]:
        with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
            found["used under Apache-2.0"] = file.read()
    return found


def standard_library():
    """The notices of the Rust standard library, which is part of every Rust program."""
    sysroot = output_of("rustc", "--print", "sysroot").strip()
    paths = [os.path.join(sysroot, "share/doc/rust/COPYRIGHT-library.html"), "/usr/share/doc/libstd-rust-dev/copyright"]
    for path in paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if path.endswith(".html"):
                text = html.unescape(re.sub(r"<(style|head)\b.*?</\1>|<[^>]+>", "", text, flags=re.S))
            return "\n".join(line.rstrip() for line in re.sub(r"\n\s*\n\s*\n+", "\n\n", text).strip().splitlines())
    sys.exit(f"no notices of the Rust standard library; none of these exists: {', '.join(paths)}")


def written(crates, known):
    """The contents of the file: each crate with its licence, then each text once, with a number."""
    numbers, lines, missing = {}, [], []
    for crate in sorted(crates):
        texts = texts_of(known[crate])
        if not texts:
            missing.append("{} {}".format(*crate))
        lines.append("== {} {} ({})".format(*crate, known[crate]["license"] or "licence in its file"))
        lines += [f"   {path}: text {numbers.setdefault(' '.join(text.split()), (len(numbers) + 1, text))[0]}" for path, text in texts.items()]
    if missing:
        sys.exit(f"no licence file in {', '.join(missing)}; look at the crate's repository, then add it to UNDER_APACHE if that fits")
    parts = ["Licences of the crates that trtllm-exporter and trtllm-doctor contain. The licence of trtllm-exporter itself is Apache-2.0.\n", *lines, ""]
    for number, text in numbers.values():
        parts += [f"{'=' * 20} text {number}", "", text.strip(), ""]
    return "\n".join([*parts, f"{'=' * 20} the Rust standard library and the crates in it", "", standard_library(), ""])


def own_crates():
    return {package["name"] for package in json.loads(output_of("cargo", "metadata", "--format-version=1", "--no-deps", "--locked"))["packages"]}


def contained(binary):
    own = own_crates()
    return {crate for crate in crates_of_binary(binary) if crate[0] not in own}


def absent_in(crates, path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return sorted(crates - set(HEADING.findall(file.read())))


def main():
    mode, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    if mode == "write" and len(arguments) > 2:
        target, path, *binaries = arguments
        crates, known = set().union(*map(contained, binaries)), packages(target)
        text = written(crates, known)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"{len(crates)} crates, {len(text) // 1024} KiB of licences")
    elif mode == "check" and len(arguments) > 1:
        crates = contained(arguments[0])
        findings = [f"{path}: no licence of {' '.join(crate)}" for path in arguments[1:] for crate in absent_in(crates, path)]
        print(*findings, f"{len(crates)} crates in the binary, {len(findings)} findings", sep="\n")
        sys.exit(bool(findings) or not crates)
    elif mode == "crates" and len(arguments) == 1:
        known = packages(arguments[0])
        print(f"{len(known)} crates, {len(written(set(known), known)) // 1024} KiB of licences")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
