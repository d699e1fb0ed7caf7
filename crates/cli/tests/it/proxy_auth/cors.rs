//! Requests of other origins.

use super::{USERS, get, request, start};
use crate::support::faulty_origins::field;
use crate::support::shared_machine;

const ROUTES: &str = "[listener.web]\nbind = \"127.0.0.1:0\"\n\
    cors = { origins = ['https://app.example', 'https://*.example.org'], credentials = true, expose = ['x-server', 'etag'], headers = ['x-token'], max-age = '1h' }\n\
    [[route]]\npath-prefix = '/any'\ncors = { origins = '*' }\npool = 'app'\n\
    [[route]]\npath-prefix = '/off'\ncors = false\npool = 'app'\n\
    [[route]]\npath-prefix = '/auth'\nauth = { basic = { users-file = 'FILES/users' } }\npool = 'app'\n\
    [[route]]\npath-prefix = '/own'\nreturn = { body = 'own' }\n\
    [[route]]\npool = 'app'\nrate-limit = { rate = '1/h', burst = 100 }\n";

fn all_fields(head: &str, name: &str) -> Vec<String> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(own, _)| own.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.to_owned())
        .collect()
}

#[test]
fn preflights_are_answered_and_responses_have_the_fields() {
    let _shared = shared_machine();
    let (proxy, origin) = start(ROUTES, &[("users", USERS)]);
    let asked = "Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-a, x-b\r\n";
    for path in ["/a", "/auth", "/own"] {
        for page in ["https://app.example", "https://x.y.example.org"] {
            let response = request(&proxy, &format!("OPTIONS {path}"), &format!("Origin: {page}\r\n{asked}"));
            let header = |name: &str| field(&response.head, name).unwrap_or_default();
            assert_eq!(
                (response.status, header("access-control-allow-origin")),
                (204, page.to_owned()),
                "{path}"
            );
            assert_eq!(header("access-control-allow-methods"), "GET, HEAD, POST, PUT, PATCH, DELETE");
            assert_eq!(
                (header("access-control-allow-headers"), header("access-control-max-age")),
                ("x-token".to_owned(), "3600".to_owned())
            );
            assert_eq!(header("access-control-allow-credentials"), "true");
            assert!(header("vary").starts_with("Origin, "));
        }
        let other =
            request(&proxy, &format!("OPTIONS {path}"), &format!("Origin: https://evil.example\r\n{asked}"));
        assert_eq!(
            (other.status, all_fields(&other.head, "access-control-allow-origin").len()),
            (204, 0),
            "{path}"
        );
    }
    assert_eq!(origin.connections(), 0, "no server has seen a preflight");
    let any = request(&proxy, "OPTIONS /any", &format!("Origin: https://evil.example\r\n{asked}"));
    let header = |name: &str| field(&any.head, name);
    assert_eq!(
        (header("access-control-allow-origin").as_deref(), header("access-control-allow-headers").as_deref()),
        (Some("*"), Some("x-a, x-b"))
    );
    assert!(header("access-control-allow-credentials").is_none());

    for (path, status) in [("/a", 200), ("/auth", 401), ("/own", 200)] {
        let response = get(&proxy, path, "Origin: https://app.example\r\n");
        assert_eq!(response.status, status);
        // Those of the server are replaced.
        assert_eq!(
            all_fields(&response.head, "access-control-allow-origin"),
            ["https://app.example"],
            "{path}"
        );
        assert_eq!(all_fields(&response.head, "access-control-expose-headers"), ["x-server, etag"]);
        assert_eq!(all_fields(&response.head, "vary"), ["Origin"]);
        for fields in ["Origin: https://evil.example\r\n", ""] {
            let response = get(&proxy, path, fields);
            assert!(
                all_fields(&response.head, "access-control-allow-origin").is_empty(),
                "{path}: {}",
                response.head
            );
            assert_eq!(all_fields(&response.head, "vary"), ["Origin"], "{path}");
        }
    }
    let any = get(&proxy, "/any", "Origin: https://x.example\r\n");
    assert_eq!(
        (all_fields(&any.head, "access-control-allow-origin"), all_fields(&any.head, "vary").len()),
        (vec!["*".to_owned()], 0)
    );
    let off = get(&proxy, "/off", "Origin: https://app.example\r\n");
    assert_eq!(all_fields(&off.head, "access-control-allow-origin"), ["https://server.example"]);
    // OPTIONS that is no preflight goes to the server.
    assert_eq!(request(&proxy, "OPTIONS /a", "Origin: https://app.example\r\n").status, 200);
}
