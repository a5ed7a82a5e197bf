"""The parts of a study, read and checked: dataset, candidates, providers, judge, budget and mode.

``Options.load`` finds the configuration, ``assemble`` reads what it names, and ``recorded_parts``
does so for a run that goes on. A ``ProviderSet`` makes each provider of the study once.
``ReadyCandidates`` makes the candidates ready to be called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypedDict, cast

from bestarm_agent.config.candidates import expand, is_like
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import (
    AUTOMATIC_ID,
    Label,
    clusters_of,
    load_labels,
    one_of_each,
    read_examples,
    slices_of,
    united,
)
from bestarm_agent.config.functions import source_name
from bestarm_agent.config.load import (
    LoadedStudy,
    check_fields,
    load_study,
    read_prompts,
    read_shots,
    study_from,
)
from bestarm_agent.config.prompts import ROW, CompiledPrompt, equal_requests, named
from bestarm_agent.config.study import (
    CandidateSpec,
    DatasetSpec,
    ModelSpec,
    ProviderLimits,
    StudyConfig,
)
from bestarm_agent.config.yaml import KeyPath, locating_options, parse_options, shown_path
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import (
    Candidate,
    Example,
    Json,
    PromptTemplate,
    Slice,
    canonical,
    digest,
    each_drawn,
)
from bestarm_agent.engine.judging import left_out
from bestarm_agent.engine.limits.model_limits import RateLimits
from bestarm_agent.engine.limits.waiting import Clock
from bestarm_agent.engine.mode import Mode, OpenMode
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import ConfigError, StoreError, counted
from bestarm_agent.judges.base import Judge, JudgeModel
from bestarm_agent.judges.registry import check_targets
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.catalog_entry import ModelFacts, ProviderEntry
from bestarm_agent.providers.registry import create_provider, find_adapter
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import StorePlace, folder_of

STORE_FILE = "runs.sqlite"


class Objects(TypedDict, total=False):
    """Python objects that ``Study.open`` takes in place of names."""

    selector: type[Rule]
    providers: Mapping[str, Provider]
    judge: Judge
    store: StorePlace


@dataclass(frozen=True, slots=True)
class Options:
    """Settings for opening a study. Objects take the place of the study's names."""

    # path, URL or open store; None: ``runs.sqlite`` in the study's ``output_dir``
    store: StorePlace | None = None
    catalog_dirs: tuple[Path, ...] = ()  # searched before the packaged catalogue
    use_cache: bool = True  # whether replies bought by earlier runs may be used
    clock: Clock = field(default_factory=Clock)
    selector: type[Rule] | None = None  # class of the selection rule
    # by name, besides the catalogue's; a study enters and leaves them
    providers: Mapping[str, Provider] = field(default_factory=dict)
    judge: Judge | None = None  # scores the replies, instead of the study's scorer

    def load(
        self,
        source: str | Path | Mapping[str, Json] | LoadedStudy,
        overrides: Mapping[str, Json] | None = None,
    ) -> LoadedStudy:
        """Read a study from a file, or take what one holds, with paths from the working directory.

        Objects take the place of its names; ``overrides`` replace values by dotted key.
        """
        changes = dict(overrides or {})
        if self.selector is not None:
            changes["selector.name"] = source_name(self.selector)
        if self.judge is not None:
            changes["scorer"] = {"name": self.judge.name}
        return changed_study(source, changes)

    def catalog(self, study: LoadedStudy) -> Catalog:
        """Return the catalogue of a study, with the objects.

        Raises:
            ValueError: a provider has another name than its key.
        """
        found: dict[tuple[str, str], object] = {}
        for name, provider in self.providers.items():
            if provider.name != name:
                raise ValueError(
                    f"providers[{name!r}] calls itself {provider.name!r}; use one name for both"
                )
            found["providers", name] = provider
        if self.selector is not None:
            found["selectors", source_name(self.selector)] = self.selector
        if self.judge is not None:
            found["judges", self.judge.name] = self.judge
        return Catalog(study.base_dir, self.catalog_dirs, found)

    def store_of(self, study: LoadedStudy) -> StorePlace:
        """Return the store of a study's runs."""
        if self.store is not None:
            return self.store
        return study.base_dir / study.config.output_dir / STORE_FILE


def changed_study(
    source: str | Path | Mapping[str, Json] | LoadedStudy, changes: Mapping[str, Json]
) -> LoadedStudy:
    """Read a study, or take one that is loaded, with some values replaced, by dotted key."""
    if isinstance(source, LoadedStudy):
        if not changes or not isinstance(source.source, Mapping):
            return source
        return study_from(source.source, source.base_dir, changes)
    if isinstance(source, Mapping):
        return study_from(source, overrides=changes)
    return load_study(Path(source), changes)


class ProviderSet:
    """The providers of a study: models that share a provider's options share the provider."""

    def __init__(self, study: LoadedStudy, catalog: Catalog) -> None:
        self._study, self._config, self._catalog = study, study.config, catalog
        self._entries: dict[str, ProviderEntry] = {}
        self._by_options: dict[str, Provider] = {}
        self._by_model: dict[tuple[str, str], Provider] = {}
        self._options = self._config.model_options()
        named: list[tuple[KeyPath, ModelSpec | CandidateSpec]] = [
            *((("models", i), spec) for i, spec in enumerate(self._config.models)),
            *((("candidates", i), spec) for i, spec in enumerate(self._config.candidates)),
        ]
        self._named = {spec.model: (at, spec.options) for at, spec in reversed(named)}
        self.started: set[int] = set()  # identities of the providers that were entered
        self._check_names()
        for provider, model in self._options:
            with self.locating(provider, model):
                self.of(provider, model)

    @contextmanager
    def locating(self, provider: str, model: str) -> Iterator[None]:
        """Add to errors where the study names a model, and its options."""
        places, study = self._study.places, self._config.providers.get(provider, {})
        shared = ("providers", provider) if provider in self._config.providers else ("scorer",)
        at, own = self._named.get(f"{provider}/{model}", (shared, {}))

        def where(*path: str | int) -> str:
            """Return the position of an option, or of the mapping that lacks it; or the model's."""
            if not path:
                return places.where(*at)
            if len(path) > 2 and path[0] == "models" and path[2] in study:
                path = path[2:]  # an option of all models counts in every pattern of the catalogue
            if path[0] in own:
                return places.where(*at, "options", *path)
            if path[0] in study:
                return places.where(*shared, *path)
            entry = self._catalog.get("providers", provider)
            for key in (("options", *path), path):
                if key in entry.lines:
                    return f"{shown_path(entry.path)}, line {entry.lines[key]}"
            return places.where(*(shared if study else at))

        with places.locating(*at), locating_options(where):
            yield

    def _check_names(self) -> None:
        limits = self._config.limits
        named: list[tuple[tuple[str, ...], str]] = [
            *((("providers", name), name) for name in self._config.providers),
            *((("limits", "providers", name), name) for name in limits.providers),
            *((("limits", "models", name), name.partition("/")[0]) for name in limits.models),
        ]
        for at, provider in named:
            with locating_options(partial(self._study.places.where, *at)):
                self._catalog.get("providers", provider)

    def of(self, provider: str, model: str, options: Mapping[str, Json] | None = None) -> Provider:
        """Return the provider of a model, by default with the options that the study gives it."""
        # Options are given for a judge's model, which may differ from a candidate of the same name:
        # such a provider is not remembered for the name. Equal options share a provider all the
        # same.
        if options:
            return self._provider(provider, model, options)
        if (at := (provider, model)) not in self._by_model:
            self._by_model[at] = self._provider(provider, model, self._options.get(at, {}))
        return self._by_model[at]

    @property
    def in_use(self) -> tuple[Provider, ...]:
        """All providers in use."""
        return tuple(self._by_options.values())

    def params(self, provider: str, model: str) -> frozenset[str]:
        """Names of the sampling parameters that are sent to a model.

        Of those that are not known, these are the ones of the study that look like no usual one.
        """
        with self.locating(provider, model):
            able = self.of(provider, model).capabilities(model)
        odd = (name for name in self._config.param_names - able.params if able.takes(name))
        return able.params.union(name for name in odd if not is_like(name, able.params))

    def able(self, model: JudgeModel) -> Capabilities:
        """Return the capabilities of a judge's model."""
        provider = self.of(model.provider, model.name, model.options)
        return provider.capabilities(model.name)

    def in_flight(self, provider: Provider, model: str) -> int:
        """Calls that may be under way at a provider at once; unknown: as many as the run allows."""
        able, given = provider.capabilities(model), self._given_in_flight(provider.name)
        found_out = self._config.limits.in_flight if able.rate_limited else able.in_flight
        return found_out if given is None else given

    def rules(self, provider: Provider, model: str) -> RateLimits:
        """Return the limits on calls to a model."""
        limits, name = self._config.limits, provider.name
        own = limits.providers.get(name), limits.models.get(f"{name}/{model}")  # which comes first
        given = {k: v for spec in own if spec is not None for k, v in spec.per_minute().items()}
        is_stated = bool(given) or self._given_in_flight(name) is not None
        searches = provider.capabilities(model).rate_limited and not is_stated
        return RateLimits(given, self._entry(name).limits.per_minute(), searches)

    def shared(self, provider: Provider) -> bool:
        """Return whether all models of an account share its rate limits."""
        own = self._config.limits.providers.get(provider.name, ProviderLimits()).shared
        return bool(self._entry(provider.name).limits.shared if own is None else own)

    def _given_in_flight(self, name: str) -> int | None:
        own = self._config.limits.providers.get(name, ProviderLimits()).in_flight
        return self._entry(name).in_flight if own is None else own

    def _entry(self, name: str) -> ProviderEntry:
        if name not in self._entries:
            self._entries[name] = self._catalog.get("providers", name).parse(ProviderEntry)
        return self._entries[name]

    def _provider(self, name: str, model: str, options: Mapping[str, Json]) -> Provider:
        """Return the provider with these options; facts about the model are known to it."""
        given = self._catalog.objects.get(("providers", name))
        if given is not None:
            if options or self._config.providers.get(name):
                raise ConfigError(
                    f"provider `{name}` was given as an object and takes no options; set them "
                    "where it is made"
                )
            return self._by_options.setdefault(name, cast(Provider, given))
        # Models that share options share a provider, and so its connections, gates and limits.
        # Where an adapter takes facts (prices, what a model takes), these are put aside first: they
        # are about one model, and two models that differ in them alone are still served by one
        # provider.
        entry = self._entry(name)
        study = self._config.providers.get(name, {})
        if not find_adapter(entry.adapter, self._study.base_dir).takes_facts:
            return self._made(name, entry.adapter, {**entry.options, **study, **options})
        shared, stated = entry.resolve(study, options)
        facts = parse_options(ModelFacts, stated, subject=f"options of {name}/{model}")
        provider = self._made(name, entry.adapter, shared)
        if provider.facts.setdefault(model, facts) != facts:
            # one model in two ways: as a candidate and as a judge, say
            provider = self._made(name, entry.adapter, shared, separate=stated)
            provider.facts[model] = facts
        return provider

    def _made(
        self,
        name: str,
        adapter: str,
        options: Mapping[str, Json],
        separate: Mapping[str, Json] | None = None,
    ) -> Provider:
        # ``separate`` tells apart the providers of one model that is described in two ways; the
        # options that reach the provider are the same for both.
        key = canonical([name, options, separate])
        if key not in self._by_options:
            made = create_provider(name, options, self._study.base_dir, adapter=adapter)
            self._by_options[key] = made
            made.set_providers(self.of)
        return self._by_options[key]


@dataclass(frozen=True, slots=True)
class StudyParts:
    """Everything that a configuration names, read and checked; no model is loaded yet."""

    study: LoadedStudy  # the configuration, and where it lies
    candidates: tuple[Candidate, ...]  # what is compared
    prompts: Mapping[str, PromptTemplate]  # the prompt templates by name
    shots: tuple[Example, ...]  # worked examples that prompts may show, in their order
    examples: tuple[Example, ...]  # the dataset, without those kept back
    kept_back: tuple[Example, ...]  # examples that only the winner answers, in a random order
    slices: tuple[Slice, ...]  # groups of them that are looked at by themselves
    independent: tuple[int, ...]  # one of each cluster; empty: no example depends on another
    kept_independent: tuple[int, ...]  # likewise of those kept back
    providers: ProviderSet  # the providers
    judge: Judge  # scores replies
    labels: tuple[Label, ...]  # gold scores of some answers
    budget: Budget  # the caps, a share of the grid turned into answers
    notices: tuple[str, ...]  # what was done to the grid that the user should know
    mode: Mode  # what the run is for

    @property
    def config(self) -> StudyConfig:
        """The configuration."""
        return self.study.config

    @property
    def folder(self) -> Path:
        """The dataset's, where images and files are."""
        return self.config.dataset.folder(self.study.base_dir)

    @property
    def unit(self) -> str:
        """The unit that statements about new ones count: "example", or "cluster" where named."""
        return "example" if self.config.dataset.cluster is None else "cluster"

    @property
    def judge_priced(self) -> bool:
        """True if the prices of the judge's models are known."""
        return all(self.providers.able(model).priced for model in self.judge.models)


def assemble(
    study: LoadedStudy,
    catalog: Catalog,
    open_mode: OpenMode = open_selection,
    *,
    examples: Sequence[Example] | None = None,
) -> StudyParts:
    """Read and check everything that a configuration names; raise ConfigError if it is wrong."""
    # The order: rows and prompts first, since the copies among the rows are known by what the
    # prompts send. Copies and clusters decide which rows are kept back, so that none of a group is
    # on both sides. Then each row is drawn ``repeats`` times, of what was left: rows kept back are
    # answered once. Mode and judge see these examples; worked examples are read knowing what was
    # held back. Candidates come last, with the sampling parameters that their providers take.
    config, base_dir, places = study.config, study.base_dir, study.places
    with places.locating("dataset"):
        rows = tuple(examples) if examples is not None else read_examples(config.dataset, base_dir)
    prompts = read_prompts(config.prompts, base_dir, catalog, places)
    providers = ProviderSet(study, catalog)
    groups = copies = _equal_requests(study, rows, prompts, providers)
    with places.locating("dataset"):
        if config.dataset.cluster is not None:
            groups = united(copies, clusters_of(rows, config.dataset.cluster))
        # Gate and certify have verdicts of their own and look for no winner, so nothing is kept
        # back.
        held: Sequence[int] = ()
        if config.confirm is not None and config.gate is None and config.certify is None:
            held = config.confirm.drawn(groups, config.selector.seed)
        out, seed = set(held), config.selector.seed
        kept = [number for number in range(len(rows)) if number not in out]
        found = each_drawn([rows[number] for number in kept], config.repeats)
        independent = one_of_each([groups[number] for number in kept], seed)
    with places.locating("slices"):
        slices = slices_of(found, config.slices.by)
    mode, judge = open_mode(study, found, catalog, independent)
    with places.locating("shots"):
        shots = read_shots(config, base_dir, prompts, rows, held)
    with places.locating("dataset"):
        unrecognised = check_targets(judge, rows)
    dropped = left_out(judge, found, providers.able) if judge.models else []
    candidates, merged = expand(config, prompts, providers.params, places, shots)
    with places.locating("prompts"):
        sent = check_prompts(prompts, candidates, providers, config.dataset, found)
    partial_judges = _partial_judges(judge, candidates)
    grid_notices = [*_grid_notices(sent, config.repeats), *_cache_notices(sent, providers)]
    with places.locating("labels"):
        labels = load_labels(base_dir / config.labels) if config.labels else ()
    return StudyParts(
        study=study,
        candidates=candidates,
        prompts=prompts,
        shots=shots,
        examples=found,
        kept_back=tuple(rows[number] for number in held),
        kept_independent=one_of_each([groups[number] for number in held], seed),
        slices=slices,
        independent=independent,
        providers=providers,
        judge=judge,
        labels=labels,
        budget=config.budget.caps(len(candidates) * len(found)),
        notices=(
            *merged,
            *grid_notices,
            *_row_notices(prompts, rows),
            *_copy_notices(copies, rows),
            *dropped,
            *unrecognised,
            *partial_judges,
        ),
        mode=mode,
    )


def _equal_requests(
    study: LoadedStudy,
    rows: Sequence[Example],
    prompts: Mapping[str, PromptTemplate],
    providers: ProviderSet,
) -> list[int]:
    """Group the rows for which every candidate is asked the same.

    That is what its prompt sends; of a program its inputs, but for their id; and of records that
    are played back whatever the prompt, these too.
    """
    dataset = study.config.dataset
    reads_inputs = False
    for provider, model in study.config.model_options():
        with providers.locating(provider, model):
            reads_inputs |= providers.of(provider, model).capabilities(model).by_inputs
    known = {field for row in rows for field in row.inputs}
    folder = dataset.folder(study.base_dir)
    compiled = [
        CompiledPrompt(template, folder=folder, links=dataset.links)
        for template in prompts.values()
    ]
    sent = [prompt for prompt in compiled if prompt.uses(known)]
    keys = [
        partial(one.request, read=read)
        for one in sent
        for read in (False, True)[: 1 + one.attaches]
    ]
    if reads_inputs or not sent:
        keys.append(partial(_content, id=dataset.id or AUTOMATIC_ID))
    return equal_requests(rows, keys)


def _content(row: Example, id: str) -> str:
    """Return a digest of the fields of a row, or its id if there is no other field."""
    inputs = {field: value for field, value in row.inputs.items() if field != id}
    return digest(inputs) if inputs else f"example {row.id}"


def _copy_notices(copies: Sequence[int], rows: Sequence[Example]) -> Iterator[str]:
    """Tell of rows that are asked as others are."""
    different = len(set(copies))
    if more := len(rows) - different:
        targets = {(one, row.reference) for one, row in zip(copies, rows, strict=True)}
        odd = len(targets) - different
        contrary = f"; {counted(odd, 'target')} of theirs differ from the original's" if odd else ""
        yield (
            f"{more:,} of {counted(len(rows), 'row')} are copies of others (every candidate is "
            f"asked the same): what is said of new examples rests on the {different:,} that "
            f"differ{contrary}"
        )


def check_prompts(
    prompts: Mapping[str, PromptTemplate],
    candidates: Sequence[Candidate],
    providers: ProviderSet,
    dataset: DatasetSpec,
    examples: Sequence[Example],
) -> list[Candidate]:
    """Return those whose prompt is sent; recorded answers and programs see only the example.

    Raises:
        ConfigError: a prompt uses the target or a field in single braces, or is sent and uses none.
    """
    fixed = check_fields(prompts, dataset, examples)
    facts = (providers.of(one.provider, one.model).capabilities(one.model) for one in candidates)
    known = zip(candidates, facts, strict=True)
    sent = [one for one, able in known if not (able.by_example or able.by_inputs)]
    fields = sorted({field for example in examples for field in example.inputs})
    for name in fixed:
        if any(one.prompt.name == name for one in sent):
            raise ConfigError(
                f"prompt `{name}` uses no field of the dataset, so that it is the same for all "
                f"examples; write what differs in double braces: "
                f"{', '.join(f'`{{{{ {named(field)} }}}}`' for field in fields[:5])}"
            )
    return sent


def _partial_judges(judge: Judge, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Warn of models that judge answers of their own."""
    compared = {f"{one.provider}/{one.model}" for one in candidates}
    for name in sorted({str(model) for model in judge.models} & compared):
        yield (
            f"judge model {name} is also a candidate, and models favour answers of their own; let "
            f"another one judge, or compare it with people's labels (`bestarm-agent judge check`)"
        )


def _grid_notices(sent: Sequence[Candidate], repeats: int) -> Iterator[str]:
    """Warn of draws that are alike."""
    alike = sum(one.params.get("temperature") == 0 for one in sent)
    if repeats > 1 and alike:
        yield (
            f"repeats: {counted(alike, 'candidate')} at temperature 0, where {repeats} draws are "
            f"(nearly) alike and all paid for; raise the temperature, or leave `repeats` out"
        )


def _row_notices(prompts: Mapping[str, PromptTemplate], rows: Sequence[Example]) -> Iterator[str]:
    """Tell of a column that hides what templates call the row."""
    if any(ROW in row.inputs for row in rows):
        for name, template in prompts.items():
            if ROW in CompiledPrompt(template).fields:
                yield (
                    f"prompt `{name}`: `{ROW}` is the column of that name, and not all columns of "
                    f"the example; rename the column to name others as `{ROW}[...]`"
                )


def _cache_notices(sent: Sequence[Candidate], providers: ProviderSet) -> Iterator[str]:
    """Warn of a field before a long constant text, which a provider's cache cannot hold then."""
    late = dict[str, tuple[int, str]]()  # tokens and field, by name of the prompt
    for one in sent:
        able = providers.of(one.provider, one.model).capabilities(one.model)
        if able.cache_from and one.prompt.name not in late:
            field, tokens = CompiledPrompt(one.prompt).constant_text_after_first_field
            if able.keeps(tokens):
                late[one.prompt.name] = tokens, field
    if late:
        name, (tokens, field) = max(late.items(), key=lambda item: item[1])
        more = (
            f" (and likewise in {counted(len(late) - 1, 'more prompt')})" if len(late) > 1 else ""
        )
        yield (
            f"prompt `{name}`: the field `{field}` stands before about {tokens:,} tokens of "
            f"constant text, which the provider's prompt cache cannot hold there{more}; write "
            f"fields last, and calls after the first pay the price of cached tokens for it"
        )


def recorded_parts(
    state: RunState,
    options: Options,
    open_mode: OpenMode,
    *,
    examples: Sequence[Example] | None = None,
) -> StudyParts:
    """Rebuild the parts of a stored run as its log says, whatever its study's file says now.

    Raises:
        ConfigError: the dataset or the judge is not what it was, or a prompt, a provider or a
            variable is gone.
    """
    started = state.started
    if not state.n_events:
        raise StoreError("the run's log is empty; begin a new run")
    # Paths in the log are relative to the store's folder, so that both can be moved together.
    folder = Path() if options.store is None else folder_of(options.store)
    loaded = study_from(started.config, folder / started.base)
    with loaded.places.locating("dataset"):
        rows = examples or read_examples(loaded.config.dataset, loaded.base_dir)
    # Rows that were added at the end since the run began are left out; rows that changed are
    # refused below. Only the first draw of each example has to be compared: the others are of the
    # same row.
    n = len(state.example_ids) // loaded.config.repeats
    began_with = n + started.kept_back
    parts = assemble(loaded, options.catalog(loaded), open_mode, examples=rows[:began_with])
    if (more := len(rows) - began_with) > 0:
        notice = (
            f"the dataset has grown by {counted(more, 'example')}; the run goes on with the "
            f"{began_with:,} that it began with, since its intervals are about these; begin a new "
            f"run for all (equal requests are taken from the reply cache)"
        )
        parts = replace(parts, notices=(*parts.notices, notice))
    originals = parts.examples[: len(parts.examples) // loaded.config.repeats]
    check_unchanged(originals, state.example_digests[:n])
    judge = parts.judge
    if started.judge not in (None, judge.digest):  # scores of two judges never mix
        raise ConfigError(
            f"judge `{judge.name}` is no longer what it was when the run began (digest "
            f"{judge.digest}, was {started.judge}), and scores of two judges do not mix; restore "
            f"its catalogue entry and template, or begin a new run (the candidates' replies are "
            f"taken from the reply cache, so that only judging is paid for again)"
        )
    return parts


def check_unchanged(rows: Sequence[Example], began_with: Sequence[str]) -> None:
    """Check that a run goes on with the examples, given by digest, with which it began."""
    now = [row.digest for row in rows]
    if now == list(began_with):
        return
    changed = sum(a != b for a, b in zip(now, began_with, strict=False))
    raise ConfigError(
        f"the dataset has changed since the run began: {len(now)} examples where there were "
        f"{len(began_with)}, {changed} of them different; restore it, or begin a new "
        f"run (equal requests are taken from the reply cache)"
    )
