//! See `record::fuzzing::toml_format`.
#![no_main]

weir_fuzz::target!("toml_format", record::fuzzing::toml_format, record::fuzzing::only_format_toml);
