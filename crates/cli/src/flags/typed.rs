//! Typed flags: a row together with the parser of its value. The table of a command is one struct of them, which
//! [`command_flags!`] declares: its fields are the values, and no look-up names a flag by text.

use record::problem::{InputProblem, InvalidValue};

use super::{CommandArgs, Flag, FlagReader};

/// Name of stdout where a file is named.
pub(crate) const STDOUT: &str = "-";

/// Parser of the value of a flag.
type Parser<T> = fn(&str) -> Result<T, InvalidValue>;

/// Flag of the table of a command: its row, and the type of its value.
pub(crate) trait TypedFlag {
    type Value;

    /// Reads the value. An invalid one is a problem, and counts as not given.
    fn read(&self, reader: &mut FlagReader<'_>) -> Self::Value;

    /// Returns the difference between the default of the help and the value.
    #[cfg(test)]
    fn default_problem(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Struct with all flags of a command, or with a group of flags that several commands have.
pub(crate) trait CommandFlags: Sized {
    /// Rows, in the order of the fields.
    const FLAGS: &'static [Flag];

    /// Reads all flags; the reader collects every problem.
    fn read(reader: &mut FlagReader<'_>) -> Self;

    /// Reads all flags; reports every problem at once.
    fn parse(args: CommandArgs<'_>) -> Result<Self, Vec<InputProblem>> {
        let mut reader = FlagReader::new(args);
        let flags = Self::read(&mut reader);
        reader.finish(flags)
    }

    /// Returns the flags whose default in the help is not their value.
    #[cfg(test)]
    fn default_problems() -> Vec<String>;
}

/// Declares the flags of a command: a struct with their values, and the table of their rows. A flag that no code of
/// the command reads is a field that is never read.
macro_rules! command_flags {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident { $($field:ident: $value:ty = $flag:expr),* $(,)? }
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visible struct $name {
            $($visible $field: $value),*
        }

        impl $crate::flags::CommandFlags for $name {
            const FLAGS: &'static [$crate::flags::Flag] = {
                const COUNT: usize = 0 $(+ $flag.rows().len())*;
                const JOINED: [$crate::flags::Flag; COUNT] = $crate::flags::join_tables(&[$($flag.rows()),*]);
                &JOINED
            };

            fn read(reader: &mut $crate::flags::FlagReader<'_>) -> Self {
                Self { $($field: $crate::flags::TypedFlag::read(&$flag, reader)),* }
            }

            #[cfg(test)]
            fn default_problems() -> Vec<String> {
                let mut problems = Vec::new();
                $(problems.extend($crate::flags::TypedFlag::default_problem(&$flag));)*
                problems
            }
        }
    };
}
pub(crate) use command_flags;

/// Flag without a value: true if it was given.
#[derive(Debug)]
pub(crate) struct Switch(Flag);

/// Flag with a value, which may be missing.
#[derive(Debug)]
pub(crate) struct ValueFlag<T> {
    row: Flag,
    parser: Parser<T>,
}

/// Flag with a value and a default.
#[derive(Debug)]
pub(crate) struct DefaultFlag<T> {
    row: Flag,
    parser: Parser<T>,
    default: T,
}

/// Flag that may be given several times.
#[derive(Debug)]
pub(crate) struct ListFlag<T> {
    row: Flag,
    parser: Parser<T>,
}

/// Flag that names the destination of a result.
#[derive(Debug)]
pub(crate) struct DestinationFlag(Flag);

/// Group of flags that several commands have.
#[derive(Debug)]
pub(crate) struct FlagSet<T>(std::marker::PhantomData<fn() -> T>);

/// Destination of a result: a file, or stdout.
#[derive(Debug)]
pub(crate) struct Destination {
    /// Long name of the flag.
    pub(crate) flag: &'static str,
    pub(crate) path: Option<String>,
}

impl Destination {
    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.path() == Some(STDOUT)
    }
}

impl Flag {
    pub(crate) const fn is_given(self) -> Switch {
        assert!(self.value.is_empty(), "a flag with a value is no switch");
        Switch(self)
    }

    /// Value as it was written; something else parses it.
    pub(crate) const fn text(self) -> ValueFlag<String> {
        self.parsed(keep_text)
    }

    pub(crate) const fn parsed<T>(self, parser: Parser<T>) -> ValueFlag<T> {
        assert!(!self.value.is_empty() && !self.repeatable, "the flag has one value");
        ValueFlag { row: self, parser }
    }

    /// Value with a default, which the row has in words.
    pub(crate) const fn parsed_or<T: Copy>(self, parser: Parser<T>, default: T) -> DefaultFlag<T> {
        assert!(!self.value.is_empty() && !self.repeatable, "the flag has one value");
        DefaultFlag { row: self, parser, default }
    }

    /// Values as they were written.
    pub(crate) const fn texts(self) -> ListFlag<String> {
        self.list(keep_text)
    }

    pub(crate) const fn list<T>(self, parser: Parser<T>) -> ListFlag<T> {
        assert!(self.repeatable, "the flag is given once");
        ListFlag { row: self, parser }
    }

    pub(crate) const fn destination(self) -> DestinationFlag {
        assert!(!self.value.is_empty() && !self.repeatable, "the flag has one value");
        DestinationFlag(self)
    }
}

/// Returns the flags of a struct as a part of another table.
pub(crate) const fn all_of<T: CommandFlags>() -> FlagSet<T> {
    FlagSet(std::marker::PhantomData)
}

fn keep_text(text: &str) -> Result<String, InvalidValue> {
    Ok(text.to_owned())
}

macro_rules! one_row {
    ($($flag:ident $(<$value:ident>)?: $($row:tt).+;)+) => {
        $(impl $(<$value>)? $flag $(<$value>)? {
            pub(crate) const fn rows(&self) -> &[Flag] {
                std::slice::from_ref(&self.$($row).+)
            }
        })+
    };
}
one_row! {
    Switch: 0;
    ValueFlag<T>: row;
    DefaultFlag<T>: row;
    ListFlag<T>: row;
    DestinationFlag: 0;
}

impl<T: CommandFlags> FlagSet<T> {
    pub(crate) const fn rows(&self) -> &'static [Flag] {
        T::FLAGS
    }
}

impl TypedFlag for Switch {
    type Value = bool;

    fn read(&self, reader: &mut FlagReader<'_>) -> bool {
        reader.args.is_set(self.0.long)
    }
}

impl<T> TypedFlag for ValueFlag<T> {
    type Value = Option<T>;

    fn read(&self, reader: &mut FlagReader<'_>) -> Option<T> {
        reader.parse(self.row.long, self.parser)
    }
}

impl<T: Copy + PartialEq> TypedFlag for DefaultFlag<T> {
    type Value = T;

    fn read(&self, reader: &mut FlagReader<'_>) -> T {
        reader.parse(self.row.long, self.parser).unwrap_or(self.default)
    }

    #[cfg(test)]
    fn default_problem(&self) -> Vec<String> {
        let Flag { long, default, .. } = self.row;
        match (self.parser)(default) {
            Ok(value) if value == self.default => Vec::new(),
            Ok(_) => vec![format!("--{long}: the default is not {default}")],
            Err(why) => vec![format!("--{long}: the default {default} is invalid: {why}")],
        }
    }
}

impl<T> TypedFlag for ListFlag<T> {
    type Value = Vec<T>;

    fn read(&self, reader: &mut FlagReader<'_>) -> Vec<T> {
        reader.parse_all(self.row.long, self.parser)
    }
}

impl TypedFlag for DestinationFlag {
    type Value = Destination;

    fn read(&self, reader: &mut FlagReader<'_>) -> Destination {
        Destination { flag: self.0.long, path: reader.args.text(self.0.long) }
    }
}

impl<T: CommandFlags> TypedFlag for FlagSet<T> {
    type Value = T;

    fn read(&self, reader: &mut FlagReader<'_>) -> T {
        T::read(reader)
    }

    #[cfg(test)]
    fn default_problem(&self) -> Vec<String> {
        T::default_problems()
    }
}
