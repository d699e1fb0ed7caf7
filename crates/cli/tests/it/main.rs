//! Integration tests: one binary, one module per theme.

#![allow(clippy::unwrap_used, reason = "a test gives up where it cannot go on")]

mod cli;
mod cli_run;
mod edge;
mod examples;
mod foreign;
mod goodput;
mod http2_serve;
mod lab;
mod lab_experiment;
mod load_http2;
mod load_requests;
mod plan;
mod process_tree;
mod profile;
mod proxy_balance;
mod proxy_config;
mod proxy_ctl;
mod proxy_faults;
mod proxy_h2;
mod proxy_h2_servers;
mod proxy_heads;
mod proxy_health;
mod proxy_http;
mod proxy_interop;
mod proxy_life;
mod proxy_logs;
mod proxy_matrix;
mod proxy_overload;
mod proxy_status;
mod proxy_tcp;
mod proxy_tls;
mod proxy_upgrade;
mod regression;
mod robust;
mod serve_files;
mod smuggling;
mod streams;
mod support;
mod tidy;
mod tls;
mod truth;
mod tune;
mod watch;
mod wire_truth;
