//! See `rt::fuzzing::ocsp_response`.
#![no_main]

weir_fuzz::target!("ocsp_response", rt::fuzzing::ocsp_response);
