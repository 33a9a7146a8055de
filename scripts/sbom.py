"""Writes what the program is made of as CycloneDX 1.5 (JSON): `sbom.py TARGET OUT`.

Every package that is compiled into the program for that target, or that builds it, with its version, licence and the checksum of Cargo.lock.
`cargo metadata` tells them; nothing else is needed.
"""

import json
import os
import pathlib
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "runner-ml"


def metadata(target):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def needed(resolve, root):
    """The packages that the program needs, and of each those that it needs itself: dependencies of tests are left out."""
    nodes = {node["id"]: node for node in resolve["nodes"]}
    found, left = {}, [root]
    while left:
        package = left.pop()
        if package in found:
            continue
        kinds = lambda dependency: {kind["kind"] for kind in dependency["dep_kinds"]}
        found[package] = sorted(d["pkg"] for d in nodes[package]["deps"] if kinds(d) & {None, "build"})
        left += found[package]
    return found


def component(package, checksums):
    name, version = package["name"], package["version"]
    made = {
        "type": "application" if name == PROGRAM else "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "description": (package["description"] or "").strip(),
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package["license"]:
        # Older packages write a slash for "or".
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def reference(package):
    return f"{package['name']}@{package['version']}"


def main(target, out):
    told = metadata(target)
    packages = {package["id"]: package for package in told["packages"]}
    root = next(id for id, package in packages.items() if package["name"] == PROGRAM)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}
    found = needed(told["resolve"], root)
    program = component(packages[root], checksums)
    others = sorted((component(packages[id], checksums) for id in found if id != root), key=lambda c: c["bom-ref"])
    # The same content has the same number, so that two releases of one commit are the same files.
    seed = json.dumps([program, others, target], sort_keys=True)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, seed)}",
        "version": 1,
        "metadata": {"component": program, "properties": [{"name": "cargo:target", "value": target}]},
        "components": others,
        "dependencies": sorted(
            ({"ref": reference(packages[id]), "dependsOn": [reference(packages[d]) for d in deps]} for id, deps in found.items()),
            key=lambda entry: entry["ref"],
        ),
    }
    partial = pathlib.Path(f"{out}.part")
    partial.write_text(json.dumps(bom, indent=1, ensure_ascii=False) + "\n")
    os.replace(partial, out)
    print(f"{out}: {len(others) + 1} packages")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
