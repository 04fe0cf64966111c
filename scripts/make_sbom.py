"""python scripts/make_sbom.py FILE.cdx.json: the parts of bermo as CycloneDX 1.6.

It is made beside the wheel, where the pinned packages are installed: what bermo and its extras need, with
versions, licences and the sums of their files from requirements.lock, and which of them needs which.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.dependencies import EXTRAS, Package, own, parts_of_bermo
from scripts.make_lock import LOCK


def sbom() -> dict[str, Any]:
    """Return the list of parts; the same packages give the same list."""
    bermo, parts = own(), parts_of_bermo()
    sums = locked_sums()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": _component(bermo, "application", []),
            "properties": [{"name": "extras", "value": ",".join(EXTRAS)}],
        },
        "components": [_component(part, "library", sums.get(part.name, [])) for part in parts],
        "dependencies": [
            {
                "ref": purl(part),
                "dependsOn": sorted(purl(other) for other in parts if other.name in part.requires),
            }
            for part in (bermo, *parts)
        ],
    }


def purl(package: Package) -> str:
    """Return the address of a package that tools compare (package URL)."""
    return f"pkg:pypi/{package.name}@{package.version}"


def locked_sums() -> dict[str, list[str]]:
    """Return the sums of each package's files."""
    found: dict[str, list[str]] = {}
    for line in LOCK.read_text(encoding="utf-8").splitlines():
        if "==" in line:
            name = line.partition("==")[0]
        elif "--hash=sha256:" in line:
            found.setdefault(name, []).append(line.partition("sha256:")[2].removesuffix(" \\"))
    return found


def _component(package: Package, kind: str, sums: list[str]) -> dict[str, Any]:
    files = [
        {
            "type": "distribution",
            "url": purl(package),
            "hashes": [{"alg": "SHA-256", "content": item} for item in sums],
        }
    ]
    return {
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
        "licenses": [{"license": {"name": package.licence}}],
        **({"externalReferences": files} if sums else {}),
    }


def main() -> int:
    """Write the list to the file that is named."""
    if len(sys.argv) != 2:
        print(f"python scripts/make_sbom.py bermo-{own().version}.cdx.json", file=sys.stderr)
        return 2
    Path(sys.argv[1]).write_text(json.dumps(sbom(), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
