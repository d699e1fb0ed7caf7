//! Cost of the decoders of this crate, and the corpora of their fuzz targets.

use decode_cost::{CountingAllocator, check, check_seeds, check_valid_seeds, corpus};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn forwarded_messages() {
    check_seeds("forward_request", &corpus("request_head"), super::only_forward_request);
    check_seeds("forward_response", &corpus("response_head"), super::only_forward_response);
}

#[test]
fn targets() {
    let seeds = ["/a/./b/../c%2fd%7Ee?x=/../", "/a//b/%2e%2E/%zz/%", "http://h/a/b", "*", "/..;/;a=b/"];
    let seeds: Vec<Vec<u8>> = seeds.map(|text| text.as_bytes().to_vec()).to_vec();
    check_seeds("proxy_target", &seeds, |bytes| {
        super::target(bytes);
    });
}

#[test]
fn client_hellos() {
    check_seeds("client_hello", &corpus("client_hello"), super::decode_client_hello);
}

#[test]
fn answers_of_name_servers() {
    check_seeds("dns_answer", &corpus("dns_answer"), |bytes| {
        super::dns_answer(bytes);
    });
    check_valid_seeds("dns_answer", super::dns_answer);
}

#[test]
fn responses_to_updates_of_zones() {
    check_seeds("dns_update", &corpus("dns_update"), |bytes| {
        super::dns_update(bytes);
    });
    check_valid_seeds("dns_update", super::dns_update);
}

#[test]
fn files_of_keys() {
    check_seeds("tsig_key", &corpus("tsig_key"), |bytes| {
        super::tsig_key(bytes);
    });
    check_valid_seeds("tsig_key", super::tsig_key);
}

#[test]
fn responses_of_acme_servers() {
    check_seeds("acme_response", &corpus("acme_response"), |bytes| {
        super::acme_response(bytes);
    });
    check_valid_seeds("acme_response", super::acme_response);
}

/// A config is the operator's: only its factor is checked, and no long input.
#[test]
fn configs() {
    let text = b"[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
        [pool.app]\nservers = [\"127.0.0.1:9001\"]\n";
    check("proxy_config", text, |bytes| {
        super::config(bytes);
    });
}

#[test]
fn texts_with_values() {
    check_seeds("proxy_template", &corpus("proxy_template"), |bytes| {
        super::template(bytes);
    });
    check_valid_seeds("proxy_template", super::template);
}

#[test]
fn files_of_maps() {
    check_seeds("proxy_map", &corpus("proxy_map"), |bytes| {
        super::map(bytes);
    });
    check_valid_seeds("proxy_map", super::map);
}

#[test]
fn credentials() {
    check_valid_seeds("proxy_auth", super::auth);
}

/// A condition is the operator's, as a config is.
#[test]
fn conditions() {
    for seed in corpus("proxy_condition") {
        check("proxy_condition", &seed, |bytes| {
            super::condition(bytes);
        });
    }
    check_valid_seeds("proxy_condition", super::condition);
}

/// Files of a config are the operator's, as a config is.
#[test]
fn files_of_a_config() {
    for seed in corpus("proxy_sources") {
        check("proxy_sources", &seed, |bytes| {
            super::sources(bytes);
        });
    }
    check_valid_seeds("proxy_sources", super::sources);
}
