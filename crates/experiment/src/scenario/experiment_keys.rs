//! Keys that only the file of an experiment has, besides those of a trial.

use record::document::table::{KeySpec, ValueForm, key, required};

use super::common_keys::LIST;

/// Higher counts would take days.
const BLOCK_COUNT: ValueForm = ValueForm::Count(1, 1000);

/// Additional tables of an experiment's file.
pub const EXPERIMENT: &[KeySpec] = &[
    key("name", ValueForm::Text, "Short name: letters, digits and `-`; the default is the file name"),
    key(
        "parameters",
        ValueForm::ShortTables(PARAMETER),
        "Values that replace `{NAME}` in all texts of the tables above; `--set NAME=TEXT` overrides \
         one. Write `{{NAME}}` for a literal `{NAME}`; `${NAME}` is left unchanged",
    ),
    key(
        "arms",
        ValueForm::Patches(TITLED),
        "Variants to compare: each arm is the file with these keys changed, for instance \
         `subject.env.LD_PRELOAD` or `parameters.threads`",
    ),
    key(
        "loads",
        ValueForm::Patches(LOAD),
        "Loads to compare under: each load is the file with these keys also changed; every arm \
         runs under every load",
    ),
    key(
        "factors",
        ValueForm::ShortTables(FACTOR),
        "Parameters with their levels; the arms, or the loads, are all combinations of them",
    ),
    key("measure", ValueForm::Table(MEASURE), "Metrics, number of trials, and required precision"),
    key(
        "discard",
        ValueForm::Table(DISCARD),
        "Bounds of disturbances. A trial beyond one of them is discarded, and its block's arms are \
         run again under that load, whatever the result was",
    ),
];

const PARAMETER: &[KeySpec] = &[
    key(
        "value",
        ValueForm::Plain,
        "Value; without one it must be given with `--set`. Short form: `NAME = \"text\"`",
    ),
    key("doc", ValueForm::Text, "Description"),
];

const TITLED: &[KeySpec] = &[key("title", ValueForm::Text, "Description, in one line")];

/// More CPUs than a kernel has are a mistake.
pub const CPUS_MAX: u64 = 8_192;

const LOAD: &[KeySpec] = &[
    TITLED[0],
    key(
        NEEDS_CPUS,
        ValueForm::Count(1, CPUS_MAX),
        "CPUs that this machine must have for this load: with fewer it is left out, and the plan says so",
    ),
];

/// The key of a load's CPUs.
pub const NEEDS_CPUS: &str = "needs-cpus";

const FACTOR: &[KeySpec] = &[
    required("levels", LIST, "Levels; short form: `NAME = [\"1\", \"2\"]`"),
    key("of", ValueForm::Word(&["arms", "loads"]), "Axis of the levels; the default is arms"),
];

const MEASURE: &[KeySpec] = &[
    key(
        "primary",
        ValueForm::Text,
        "Metric that decides, fixed before the run; the default is `responses_per_s`, and \
         `subject_us_per_response` if a load has a fixed rate (`-R`)",
    ),
    key(
        "also",
        LIST,
        "Further metrics; the default is `responses_per_s`, `p50_ns`, `p99_ns`, \
         `subject_us_per_response`, `subject_cpus`, `generator_cpus` and `error_fraction`",
    ),
    key("effect", ValueForm::Fraction, "Smallest effect that matters; the default is 2%"),
    key("baseline", ValueForm::Text, "Arm to compare the others with; the default is the first"),
    key("duration", ValueForm::Time, "Length of each load, `{duration}`; the default is 8s"),
    key("blocks", ValueForm::Table(BLOCKS), "Blocks: each is every arm under every load, in random order"),
    key("confidence", ValueForm::Fraction, "Confidence of the intervals; the default is 95%"),
    key("profile", ValueForm::Flag, "Sample the subject's functions, and keep the folded stacks"),
    key(
        "calls",
        ValueForm::Text,
        "Count calls of the subject in separate trials that are not judged: `allocations` \
         (all functions that allocate memory), `malloc`, `calloc`, `realloc`, `free`, `syscalls`, or \
         the name of a system call",
    ),
];

/// Maximum fraction of groups that may be run again.
pub const RERUNS_FRACTION_MAX: f64 = 10.0;

const BLOCKS: &[KeySpec] = &[
    key("min", BLOCK_COUNT, "Minimum number of blocks; the default is 10"),
    key("max", BLOCK_COUNT, "Maximum number of blocks; the default is 30"),
    key(
        "reruns-max",
        ValueForm::FractionTo(RERUNS_FRACTION_MAX),
        "Maximum reruns of a block's arms under a load because of disturbances, as a fraction of \
         all of them; the default is 50%",
    ),
];

/// Keys of `[discard]` with their covariates in plans and trials.
pub const BOUND_COVARIATES: &[(&str, &str)] = &[
    ("steal", "steal_fraction"),
    ("foreign-cpus", "foreign_cpus"),
    ("wake-up-ratio", "wake_up_p99_ns"),
    ("generator-lag", "generator_lag_p99_ns"),
    ("generator-busiest", "generator_busiest_fraction"),
    ("errors", "error_fraction"),
    ("throttled", "throttled_fraction"),
    ("clock-step", "clock_step_s"),
];

/// Returns the key of a covariate's bound, which is the name in `--discard`; other codes are returned as they are.
pub fn bound_key(covariate: &str) -> &str {
    BOUND_COVARIATES.iter().find(|(_, name)| *name == covariate).map_or(covariate, |(key, _)| key)
}

pub const DISCARD: &[KeySpec] = &[
    key(
        "steal",
        ValueForm::Fraction,
        "Fraction of CPU time that the hypervisor gave to other virtual machines; the default is no bound: \
         it counts relative to the difference",
    ),
    key(
        "foreign-cpus",
        ValueForm::Number,
        "CPUs used by processes outside the experiment; the default is no bound: they count relative to the \
         difference",
    ),
    key(
        "wake-up-ratio",
        ValueForm::Number,
        "Wake-up lag of sleeping threads (99 %) over the median of the first five trials of the \
         same arm and load; the default is no bound",
    ),
    key("generator-lag", ValueForm::Time, "Generator lag (99 %), if the load has a rate; the default is 1ms"),
    key(
        "generator-busiest",
        ValueForm::Fraction,
        "Fraction of a CPU that the generator's busiest thread used; the default is no bound",
    ),
    key(
        "errors",
        ValueForm::Fraction,
        "Fraction of requests that failed or had a status of 400 or above; the default is 0.1%. It is \
         the only bound on a result of the load: the figures of a trial with errors are not \
         representative. A warning names the arms whose trials it discards",
    ),
    key(
        "throttled",
        ValueForm::Fraction,
        "Fraction of quota periods in which the subject was throttled by a quota that the experiment \
         did not set; the default is 0",
    ),
    key("clock-step", ValueForm::Time, "Step of the wall clock; the default is 100ms"),
];
