"""Checks the output of `export` against Kubernetes's own schemas.

forms/kubernetes-1.30.json and kubernetes-1.37.json are strict schemas from kubernetes-validate
1.37.0 (Apache License 2.0). They have three kinds and their parts, without descriptions. The
package itself takes 108 MB.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema

FORMS = Path(__file__).with_name("forms")
VERSIONS = ("1.30", "1.37")


def validate(document, version):
    """Raise jsonschema.ValidationError if Kubernetes would refuse a document's fields."""
    forms = json.loads((FORMS / f"kubernetes-{version}.json").read_text())
    schema = {**forms["kinds"][document["kind"]], "$defs": forms["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(document)
