//! `tollgate serve`: the service, from its arguments to its last answer.

mod address;
mod admin;
mod args;
mod banner;
mod common;
mod domain;
mod doorman;
mod drain;
mod journal;
mod listen;
mod server;
mod settings;
mod stream;
mod tls;
mod values;
mod workers;

pub use self::address::Address;
pub(crate) use self::args::{Compat, ServeArgs, run};
pub(crate) use self::common::CommonArgs;
pub(crate) use self::domain::SeveralDomains;
pub(crate) use self::doorman::{Doorman, network_of};
pub(crate) use self::drain::{Drain, Drained, Phase};
pub(crate) use self::listen::Serve;
pub use self::server::{Addresses, Server, StartError};
pub(crate) use self::server::{EXAMPLE, House};
pub(crate) use self::settings::Manner;
pub use self::settings::{
    BanSettings, ConnectionSettings, EnvoySettings, GatewaySettings, HeaderProfile, RedisSettings, Secret, Settings,
};
pub(crate) use self::stream::{Peer, Stream};
pub use self::tls::TlsFiles;
pub(crate) use self::values::{parse_network, parse_rate, parse_size, parse_time, tls as tls_files};
