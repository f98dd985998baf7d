#!/usr/bin/env python3
"""Checks a release: check.py BINARY SBOM. The binary must contain the list of its crates, and the SBOM must have the
same crates."""

import json
import struct
import sys
import zlib


def section(binary, name):
    """The bytes of a section of a 64-bit little-endian ELF file."""
    if binary[:6] != b"\x7fELF\x02\x01":
        sys.exit("the binary is not a 64-bit ELF file")
    (offset,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    headers = [struct.unpack_from("<IIQQQQ", binary, offset + index * size) for index in range(count)]
    texts = headers[names][4]
    for text, _, _, _, at, length in headers:
        begin = texts + text
        if binary[begin : binary.index(b"\0", begin)] == name:
            return binary[at : at + length]
    sys.exit(f"the binary has no section {name.decode()}; build it with deploy/release/build.sh")


def crates_of_binary(path):
    with open(path, "rb") as file:
        listed = json.loads(zlib.decompress(section(file.read(), b".dep-v0")))
    return {(crate["name"], crate["version"]) for crate in listed["packages"]}


def crates_of_sbom(path):
    with open(path) as file:
        sbom = json.load(file)
    if sbom["bomFormat"] != "CycloneDX":
        sys.exit(f"{path} is not in CycloneDX")
    parts = [sbom["metadata"]["component"], *sbom["components"]]
    # A crate from the registry must have a checksum.
    unchecked = [part["name"] for part in parts if "registry+" in part["bom-ref"] and not part.get("hashes")]
    if unchecked:
        sys.exit(f"no SHA-256 in {path} for {unchecked}")
    return {(part["name"], part["version"]) for part in parts}


def main():
    binary, sbom = crates_of_binary(sys.argv[1]), crates_of_sbom(sys.argv[2])
    for crates, where in [(binary - sbom, "only in the binary"), (sbom - binary, "only in the SBOM")]:
        for name, version in sorted(crates):
            print(f"{name} {version} is {where}", file=sys.stderr)
    if binary != sbom:
        sys.exit(1)
    print(f"{len(binary)} crates in the binary and in the SBOM")


if __name__ == "__main__":
    main()
