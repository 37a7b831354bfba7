"""What a body of a request may hold. Unknown fields are refused: a misspelt `digest` must not become a request without one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from policies.facts import Spans
from supervisor.journal.requests import Span

Digest = Annotated[
    str, Field(pattern=r"^[0-9a-f]{6,32}$", description="Of the plan that you have seen; 6 digits or more.")
]
Why = Annotated[str, Field(max_length=2000, description="Your reason; it is kept in the journal.")]


def _said(why: str) -> str:
    """Raises ValueError."""
    if not why.strip():
        raise ValueError("a reason has to be given")
    return why


Reason = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_said)]
Node = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]
Nodes = Annotated[tuple[Node, ...], Field(max_length=1000)]
Save = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,200}$")]
Skip = Annotated[tuple[Span, ...], Field(max_length=64, description="[first, end] pairs; end is not left out itself.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Approval(_Body):
    """Yes to one plan."""

    digest: Digest
    why: Why = ""


class Refusal(_Body):
    """No to one plan. The run halts."""

    digest: Digest
    why: Reason


class Change(_Body):
    """Another plan: what is given here is chosen, what is left out stays as it was chosen before."""

    checkpoint: Save = ""
    spares: Nodes = ()
    keep_nodes: Nodes = ()
    skip_samples: Skip = ()
    why: Why = ""

    @property
    def spans(self) -> Spans:
        """Samples left out."""
        return tuple(self.skip_samples)


class Because(_Body):
    """A reason, if there is one to give."""

    why: Why = ""


class Resumption(_Body):
    """Lifting a pause or a halt; a halt takes a reason, and samples can be left out from there on."""

    why: Why = ""
    skip_samples: Skip = ()
