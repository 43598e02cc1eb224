//! Where the other server keeps its counters, as an address of `--store`.

use anyhow::bail;

/// The address, if the variables name a Redis.
pub(super) fn address<'v>(
    variable: impl Fn(&str) -> Option<&'v str>,
    is_on: impl Fn(&str) -> bool,
) -> anyhow::Result<Option<String>> {
    let Some(place) = variable("REDIS_URL") else { return Ok(None) };
    if let Some(other) = variable("BACKEND_TYPE").filter(|kind| !kind.eq_ignore_ascii_case("redis")) {
        bail!("BACKEND_TYPE={other}: counters live in Redis or in memory; unset REDIS_URL for memory");
    }
    let scheme = if is_on("REDIS_TLS") { "rediss" } else { "redis" };
    let login = variable("REDIS_AUTH").map(login).unwrap_or_default();
    let mut query = Vec::new();
    for (name, option) in
        [("REDIS_TLS_CACERT", "ca_file"), ("REDIS_TLS_CLIENT_CERT", "cert_file"), ("REDIS_TLS_CLIENT_KEY", "key_file")]
    {
        query.extend(variable(name).map(|path| format!("{option}={}", encoded(path))));
    }
    let kind = variable("REDIS_TYPE").unwrap_or("single").to_ascii_lowercase();
    let is_socket = variable("REDIS_SOCKET_TYPE").is_none_or(|kind| kind == "unix") && place.starts_with('/');
    let address = match &*kind {
        "single" if is_socket => format!("{scheme}+unix://{login}{place}"),
        "single" => match place.split_once("://") {
            Some((_, rest)) => format!("{scheme}://{}{rest}", if rest.contains('@') { "" } else { &login }),
            None => format!("{scheme}://{login}{place}"),
        },
        "sentinel" => {
            let Some((name, sentinels)) = place.split_once(',') else {
                bail!(
                    "REDIS_URL of REDIS_TYPE=sentinel is the name of the primary, then the Sentinels, apart by commas"
                );
            };
            if let Some(given) = variable("REDIS_SENTINEL_AUTH") {
                let (user, password) = given.split_once(':').unwrap_or(("", given));
                if !user.is_empty() {
                    query.push(format!("sentinel_user={}", encoded(user)));
                }
                query.push(format!("sentinel_password={}", encoded(password)));
            }
            format!("{scheme}+sentinel://{login}{sentinels}/{}", encoded(name))
        }
        "cluster" => format!("{scheme}+cluster://{login}{place}"),
        other => bail!("REDIS_TYPE={other}: write single, sentinel or cluster"),
    };
    let mark = if query.is_empty() { "" } else { "?" };
    Ok(Some(format!("{address}{mark}{}", query.join("&"))))
}

/// `password` or `user:password`, as it stands in an address.
fn login(given: &str) -> String {
    let (user, password) = given.split_once(':').unwrap_or(("", given));
    format!("{}:{}@", encoded(user), encoded(password))
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &'static str)]) -> anyhow::Result<Option<String>> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        address(variable, |name| variable(name) == Some("true"))
    }

    #[test]
    fn each_way_to_name_a_redis_is_an_address_that_is_understood() {
        for (variables, expected) in [
            (&[("REDIS_URL", "redis:6379"), ("REDIS_SOCKET_TYPE", "tcp")][..], "redis://redis:6379"),
            (&[("REDIS_URL", "/run/redis.sock")], "redis+unix:///run/redis.sock"),
            (&[("REDIS_URL", "redis://u:p@host/2"), ("REDIS_SOCKET_TYPE", "tcp")], "redis://u:p@host/2"),
            (&[("REDIS_URL", "h:1"), ("REDIS_SOCKET_TYPE", "tcp"), ("REDIS_AUTH", "p@ss")], "redis://:p%40ss@h:1"),
            (&[("REDIS_URL", "h:1"), ("REDIS_AUTH", "me:pass"), ("REDIS_TLS", "true")], "rediss://me:pass@h:1"),
            (
                &[("REDIS_URL", "h:1"), ("REDIS_TLS", "true"), ("REDIS_TLS_CACERT", "/ca.pem")],
                "rediss://h:1?ca_file=/ca.pem",
            ),
            (
                &[("REDIS_URL", "mine,a:1,b:2"), ("REDIS_TYPE", "SENTINEL"), ("REDIS_SENTINEL_AUTH", "s")],
                "redis+sentinel://a:1,b:2/mine?sentinel_password=s",
            ),
            (&[("REDIS_URL", "a:1,b:2"), ("REDIS_TYPE", "CLUSTER")], "redis+cluster://a:1,b:2"),
        ] {
            let address = of(variables).unwrap().unwrap();
            assert_eq!(address, expected);
            assert!(address.parse::<tollgate_redis::link::Address>().is_ok(), "{address}");
        }
        assert_eq!(of(&[("REDIS_TYPE", "cluster")]).unwrap(), None);
        for wrong in [
            &[("REDIS_URL", "a"), ("REDIS_TYPE", "b")][..],
            &[("REDIS_URL", "a:1"), ("REDIS_TYPE", "sentinel")],
            &[("REDIS_URL", "a:1"), ("BACKEND_TYPE", "memcache")],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
