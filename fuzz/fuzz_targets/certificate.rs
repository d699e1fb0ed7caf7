//! See `rt::fuzzing::certificate`.
#![no_main]

weir_fuzz::target!("certificate", rt::fuzzing::certificate);
