//! See `proxy::fuzzing::acme_response`.
#![no_main]

weir_fuzz::target!("acme_response", proxy::fuzzing::acme_response);
