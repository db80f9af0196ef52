"""One model of what people write: the schema of a definition and the reader of any JSON follow from one class.  Pure.

msgspec's decoder stops at the first error.  Pydantic finds all errors of fields, but then none of those about two
fields, and its schemas are not structural (anyOf, $ref, no int32).  So a model is read through `Fields`, which notes
every problem at its place and goes on with the default.  That a required field is absent is the kind's to refuse,
because it has a reason of its own for each.
"""

from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from shared.frameworks import schemas
from shared.frameworks.reading import GREATEST, Fields
from shared.frameworks.schemas import Document

T = TypeVar("T")


class Field(Generic[T]):
    """A field of an object; its name in a manifest is that of the attribute in camel case."""

    def __init__(self, schema: Document, read: Callable[[Fields, str], T], *, required: bool = False) -> None:
        self.schema, self.read, self.required = schema, read, required

    def __set_name__(self, owner: type, name: str) -> None:
        first, *others = name.split("_")
        self.attribute, self.name = name, first + "".join(word.title() for word in others)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        # Only of the class: an instance has the value under the same name.
        return self


class Written:
    """An object of a manifest; the docstring of a subclass is its description in the definition."""

    rules: ClassVar[Sequence[Document]] = ()
    """The `x-kubernetes-validations` about several of its fields."""
    declared: ClassVar[tuple[Field[Any], ...]] = ()
    """The fields, those of a base class first."""

    def __init_subclass__(cls) -> None:
        own = [each for each in vars(cls).values() if isinstance(each, Field)]
        cls.declared = (*cls.declared, *own)

    def __init__(self, fields: Fields, older: Fields | None = None) -> None:
        """Read the object; `older` is where fields stand that are absent in `fields`."""
        self.fields = fields
        for each in self.declared:
            place = fields if older is None or fields.has(each.name) or not older.has(each.name) else older
            self.__dict__[each.attribute] = each.read(place, each.name)

    @classmethod
    def properties(cls) -> Document:
        return {each.name: each.schema for each in cls.declared}

    @classmethod
    def schema(cls) -> Document:
        return schemas.members(
            cls.properties(),
            required=[each.name for each in cls.declared if each.required],
            description=" ".join((getdoc(cls) or "").split()),
            rules=cls.rules,
        )


W = TypeVar("W", bound=Written)


def number(
    description: str = "",
    least: int = 0,
    most: int = GREATEST,
    *,
    reason: str = "InvalidValue",
    instead: str = "",
    required: bool = False,
) -> Field[int | None]:
    """A whole number within bounds; a refusal says what to write `instead`, if the bounds alone would not say it."""
    return Field(
        schemas.number(least, most, description),
        lambda fields, name: fields.integer(name, least=least, most=most, reason=reason, instead=instead),
        required=required,
    )


def choice(
    choices: tuple[T, ...],
    default: T,
    reason: str,
    description: str = "",
    *,
    empty: bool = False,
    rules: Sequence[Document] = (),
) -> Field[T]:
    """One of these words; with `empty` the definition accepts an empty string, too, as Go programs write it."""
    schema = schemas.choice(*([""] if empty else []), *map(str, choices), description=description)
    schema |= {"x-kubernetes-validations": [*rules]} if rules else {}
    return Field(schema, lambda fields, name: fields.choice(name, choices, default, reason=reason))


def text(description: str = "", *, required: bool = False, **more: Any) -> Field[str]:
    return Field(_described(schemas.TEXT | more, description), Fields.text, required=required)


def flag(description: str = "") -> Field[bool]:
    return Field(_described(schemas.BOOLEAN, description), Fields.boolean)


def anything(schema: Document, *, required: bool = False) -> Field[Fields]:
    """An object that the kind reads by itself, such as a pod template."""
    return Field(schema, Fields.part, required=required)


def part(model: type[W]) -> Field[W]:
    return Field(model.schema(), lambda fields, name: model(fields.part(name)), required=True)


def items(model: type[W], description: str = "", **more: Any) -> Field[list[W]]:
    schema = _described({"type": "array"}, description) | {"items": model.schema()} | more
    return Field(schema, lambda fields, name: [model(each) for each in fields.parts(name)])


def _described(schema: Document, description: str) -> Document:
    return schema | ({"description": description} if description else {})
