//! See `proxy::fuzzing::forward_response`.
#![no_main]

weir_fuzz::target!("forward_response", proxy::fuzzing::forward_response, proxy::fuzzing::only_forward_response);
