"""Reviews: who am I, and may I?  Whoever is known may do everything."""

from typing import Any

from devcluster.apiserver.auth import User
from devcluster.apiserver.errors import Json, method_not_allowed
from devcluster.apiserver.metadata import check_type
from devcluster.apiserver.resources import SUBJECT_REVIEW, Resource


def review(resource: Resource, user: User, body: Any, verb: str) -> Json:
    if verb != "create":
        raise method_not_allowed()
    answered = check_type(resource, {} if body is None else body)
    answered["metadata"] = {"creationTimestamp": None}
    if resource is SUBJECT_REVIEW:
        answered["status"] = {"userInfo": user.info()}
    elif resource.kind == "SelfSubjectRulesReview":
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        everywhere = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        answered["status"] = {"resourceRules": [everything], "nonResourceRules": [everywhere], "incomplete": False}
    else:
        answered["status"] = {"allowed": True, "reason": "this development server knows no authorization"}
    return answered
