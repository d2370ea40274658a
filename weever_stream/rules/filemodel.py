"""The shape of a rule file, as pydantic models: what `schema.json` publishes and what a file is checked against.

Only the shape is checked here: which fields there are and whether each is text, a list or a mapping. What the texts
say is the parser's business.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from weever_stream.rules.model import Severity

__all__ = ["DependencyModel", "FileModel", "OrderModel", "RuleAlertsModel", "RuleModel", "TableModel", "json_schema"]

KINDS = ("deny", "unique", "fd", "order")
Name = Annotated[str, Field(min_length=1, max_length=300)]
Expression = Annotated[str, Field(min_length=1)]


def _written(value: object) -> str:
    return "text" if isinstance(value, str) else "mapping"


def _listed(value: object) -> str:
    return "text" if isinstance(value, str) else "list"


Names = Annotated[
    Annotated[Name, Tag("text")] | Annotated[list[Name], Field(min_length=1), Tag("list")], Discriminator(_listed)
]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)


class TableModel(_Shape):
    """The table with its key."""

    name: Name
    key: Names | None = None


class DependencyModel(_Shape):
    """A functional dependency: rows that agree on the determinants agree on every dependent."""

    determinants: Names
    dependents: Names


class OrderModel(_Shape):
    """As `by` rises, `of` must not fall, among rows that agree on `within`."""

    by: Name
    of: Names
    within: Names | None = None


Dependency = Annotated[
    Annotated[Expression, Tag("text")] | Annotated[DependencyModel, Tag("mapping")], Discriminator(_written)
]
Order = Annotated[Annotated[Expression, Tag("text")] | Annotated[OrderModel, Tag("mapping")], Discriminator(_written)]


Shown = Annotated[
    Annotated[Literal["none", "keys", "all"], Tag("text")] | Annotated[list[Name], Tag("list")], Discriminator(_listed)
]
GroupBy = Annotated[
    Annotated[Literal["rule", "equality"], Tag("text")] | Annotated[list[Name], Field(min_length=1), Tag("list")],
    Discriminator(_listed),
]


class RuleAlertsModel(_Shape):
    """What a rule says of its alerts. What is left out is as the target has it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    to: Annotated[Names | None, Field(description="The targets that hear of it, by name; without it all do.")] = None
    values: Annotated[
        Shown, Field(description="What of the rows is shown: nothing, keys, keys and all values, or keys and these.")
    ] = "none"
    group_by: Annotated[
        GroupBy | None,
        Field(description="One alert for the rule, or one for each value of its equality, or of these columns."),
    ] = None
    after: Annotated[
        str | None, Field(pattern=r"^\s*[1-9][0-9]{0,8}(\s+violations?)?\s*$", description="5, or 5 violations")
    ] = None
    for_: Annotated[str | None, Field(alias="for", description="How long they must have lasted: 10 minutes")] = None
    runbook: Annotated[str | None, Field(max_length=2000, description="Where it says what to do.")] = None


class RuleModel(_Shape):
    """One rule: a name and exactly one of `deny`, `unique`, `fd` and `order`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]})

    name: Annotated[Name, Field(description="Unique within the file.")]
    deny: Annotated[
        Expression | None,
        Field(description="What no two different rows t and s may satisfy: t.zip = s.zip and t.city != s.city"),
    ] = None
    unique: Annotated[Names | None, Field(description="No two rows agree on all these columns.")] = None
    fd: Annotated[Dependency | None, Field(description="A functional dependency: zip -> city, state")] = None
    order: Annotated[
        Order | None, Field(description="As the first rises the second must not fall: salary -> rate within state")
    ] = None
    filter: Annotated[Expression | None, Field(description="Rows that the rule speaks of: country = 'US'")] = None
    severity: Severity = "error"
    description: str | None = None
    owner: str | None = None
    metadata: dict[str, Any] | None = None
    alerts: Annotated[RuleAlertsModel | None, Field(description="How this rule's alerts differ from others.")] = None
    spread: Annotated[
        int | None,
        Field(ge=2, le=64, description="For a hot key in a stream: into how many parts its rows are cut."),
    ] = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> RuleModel:
        said = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(said) != 1:
            raise ValueError(
                f"a rule has one of deny, unique, fd and order; this one has {' and '.join(said) or 'none'}"
            )
        return self


class FileModel(_Shape):
    """A rule file of weever_stream."""

    version: Annotated[Literal[1], Field(description="The version of this format.")] = 1
    name: Annotated[str | None, Field(description="Names the job in alerts, metrics and lineage.")] = None
    table: Annotated[Annotated[Name, Tag("text")] | Annotated[TableModel, Tag("mapping")], Discriminator(_written)]
    key: Annotated[Names | None, Field(description="The columns that name a row.")] = None
    columns: Annotated[dict[str, Name], Field(description="Types where the source has none, or to override it.")] = {}
    source: dict[str, Any] | None = None
    rules: Annotated[list[RuleModel], Field(max_length=20_000)]
    sinks: list[dict[str, Any]] = []
    alerts: list[dict[str, Any]] = []
    metrics: Annotated[dict[str, Any] | None, Field(description="Where the job serves its metrics.")] = None
    state: dict[str, Any] | None = None
    learn: Annotated[
        dict[str, Any] | None, Field(description="Which rules the job looks for in its own table while that changes.")
    ] = None
    trigger: Annotated[str | None, Field(description="How often the stream looks for changes: 10 seconds")] = None
    spark: Annotated[dict[str, Any], Field(description="Settings of the Spark session, by their own names.")] = {}


def json_schema() -> dict[str, Any]:
    """The JSON schema of a rule file, for editors and CI."""
    schema = FileModel.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
