//! The words of the language: which fields there are, where they may be written, and what they are for.
//!
//! This is the only place where a field has its name. A place is a struct with one slot per field, so that lowering
//! reads `fields.rate_limit`; the same table says what is unknown, misplaced or written twice, and becomes the JSON
//! Schema.

use crate::gateway::HeaderFamily;
use crate::model::{Consistency, LyftUnit, Mode, OnLimit, Priority, StoreFailure};
use crate::yaml::Node;

/// A field as it was written: its key and its value.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) key: &'a Node,
    pub(crate) value: &'a Node,
}

/// Room for one field.
pub(crate) type Slot<'a> = Option<Written<'a>>;

/// One field of a place.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Another name that is understood.
    pub(crate) alias: Option<&'static str>,
    pub(crate) shape: Shape,
    pub(crate) doc: &'static str,
    /// The algorithms that have this option; all of them when empty.
    pub(crate) only: &'static [Method],
}

/// A mapping with certain fields.
pub(crate) struct Place {
    /// In the schema.
    pub(crate) name: &'static str,
    /// In a message, after "belongs".
    pub(crate) whereabouts: &'static str,
    pub(crate) doc: &'static str,
    /// Whether envoyproxy/ratelimit knows it: there the last of two equal fields counts.
    pub(crate) dialect: Dialect,
    pub(crate) own_fields: &'static [Field],
    /// Fields that it shares with other places.
    pub(crate) shared: Option<fn() -> &'static Place>,
}

impl Place {
    /// Its fields, the shared ones last.
    pub(crate) fn fields(&self) -> Box<dyn Iterator<Item = &'static Field>> {
        let shared = self.shared.map(|shared| shared().fields());
        Box::new(self.own_fields.iter().chain(shared.into_iter().flatten()))
    }

    /// The field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields().find(|field| field.name == name || field.alias == Some(name))
    }
}

/// Whose word it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// That of envoyproxy/ratelimit.
    Lyft,
    /// tollgate's own.
    Own,
}

/// What may be written in a field.
pub(crate) enum Shape {
    Text,
    Count,
    Flag,
    /// A length of time.
    Time,
    /// A limit as text.
    Rate,
    /// One of some words.
    Word(&'static dyn Words),
    Map(fn() -> &'static Place),
    List(&'static Shape),
    /// Any of these.
    Any(&'static [Shape]),
    /// Keys of a request, each with a pattern for its value.
    Conditions,
    /// What a value may be like.
    Pattern,
    /// Whatever someone likes to write there.
    Free,
}

/// A field's words and what each stands for.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T, &'static str)]);

/// The words of a [`Choice`], whatever they stand for.
pub(crate) trait Words: Sync {
    /// Each with what is to be said about it.
    fn words(&self) -> Vec<(&'static str, &'static str)>;
}

impl<T: Sync> Words for Choice<T> {
    fn words(&self) -> Vec<(&'static str, &'static str)> {
        self.0.iter().map(|(word, _, doc)| (*word, *doc)).collect()
    }
}

/// The algorithms by the names that rules give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    SlidingWindow,
    TokenBucket,
    LeakyBucket,
    LeakyMeter,
    FixedWindow,
    SlidingLog,
    Concurrency,
    Pacing,
}

pub(crate) static ALGORITHM: Choice<Method> = Choice(&[
    ("sliding_window", Method::SlidingWindow, "So many in a rolling window, from two counters. The default."),
    ("token_bucket", Method::TokenBucket, "Tokens flow in at the rate, up to `burst`; a request takes its cost."),
    ("leaky_bucket", Method::LeakyBucket, "Requests wait in a queue and leave it at the rate."),
    ("leaky_meter", Method::LeakyMeter, "The same without a queue: what comes faster is refused."),
    ("fixed_window", Method::FixedWindow, "So many in each window on the clock or the calendar."),
    ("sliding_log", Method::SlidingLog, "So many in any window, exactly; remembers each request."),
    ("concurrency", Method::Concurrency, "So many at the same time."),
    ("pacing", Method::Pacing, "A budget that is spent evenly over its window."),
]);

pub(crate) static MODE: Choice<Mode> = Choice(&[
    ("enforce", Mode::Enforce, "The limits bind. The default."),
    ("shadow", Mode::Shadow, "They are counted and reported, and nothing is denied."),
    ("off", Mode::Off, "As if the rule were not there."),
]);

pub(crate) static PRIORITY: Choice<Priority> = Choice(&[
    ("low", Priority::Low, "The first to go without."),
    ("normal", Priority::Normal, "The default."),
    ("high", Priority::High, "Before normal ones."),
    ("critical", Priority::Critical, "The last to go without."),
]);

/// How many requests an upstream is given at a time, where no number says it.
pub(crate) static MOST_CONCURRENT: Choice<()> =
    Choice(&[("adaptive", (), "As many as it answers without becoming slow, from 10 to 1,000.")]);

/// Whether those that came last are served first.
pub(crate) static ORDER: Choice<bool> = Choice(&[
    ("oldest_first", false, "Those that came first are served first. The default."),
    ("newest_first", true, "Those that came last are: their clients are still there."),
]);

pub(crate) static CONSISTENCY: Choice<Consistency> = Choice(&[
    ("exact", Consistency::Exact, "Every decision asks the shared store. The default."),
    ("local", Consistency::Local, "Each server counts alone."),
]);

pub(crate) static STORE_FAILURE: Choice<StoreFailure> = Choice(&[
    ("local", StoreFailure::Local, "Each server enforces its share by itself. The default."),
    ("allow", StoreFailure::Allow, "Requests pass."),
    ("deny", StoreFailure::Deny, "Requests are denied."),
]);

pub(crate) static ON_LIMIT: Choice<OnLimit> = Choice(&[
    ("reject", OnLimit::Reject, "Refuse at once. The default."),
    ("enqueue", OnLimit::Enqueue, "Keep the request and do it later."),
]);

pub(crate) static HEADER_FAMILY: Choice<HeaderFamily> = Choice(&[
    ("ietf", HeaderFamily::Ietf, "RateLimit and RateLimit-Policy, as the IETF drafts them."),
    ("x", HeaderFamily::X, "X-RateLimit-Limit, -Remaining and -Reset."),
    ("seed", HeaderFamily::Seed, "X-Ratelimit-Limit, -Remaining and -Retry-After."),
    ("kong", HeaderFamily::Kong, "RateLimit-Limit, -Remaining and -Reset, and one of each for every time span."),
    ("none", HeaderFamily::None, "None but Retry-After."),
    ("nothing", HeaderFamily::Nothing, "None at all, whatever else is said."),
]);

/// Whether tokens come all at once.
pub(crate) static REFILL: Choice<bool> = Choice(&[
    ("continuous", false, "Evenly: 4 per minute is one every 15 seconds. The default."),
    ("interval", true, "All at once, on the clock: 4 at each full minute."),
]);

/// What a new bucket holds; none is as much as fits.
pub(crate) static INITIAL: Choice<Option<u64>> =
    Choice(&[("full", None, "As much as fits. The default."), ("empty", Some(0), "Nothing.")]);

/// Whether a window begins with a request.
pub(crate) static ANCHOR: Choice<bool> = Choice(&[
    ("clock", false, "At full minutes, hours and so on. The default."),
    ("first_request", true, "At a key's first request after its last window."),
]);

pub(crate) static ROUNDING: Choice<tollgate_core::Rounding> = Choice(&[
    ("none", tollgate_core::Rounding::None, "It counts as what it is. The default."),
    ("floor", tollgate_core::Rounding::Floor, "It is dropped."),
    ("ceil", tollgate_core::Rounding::Ceil, "It counts as one."),
]);

/// The units of Lyft's dialect, which may be written in either case.
struct LyftUnits;

impl Words for LyftUnits {
    fn words(&self) -> Vec<(&'static str, &'static str)> {
        const OTHERS: [&str; 14] = [
            "Second", "Minute", "Hour", "Day", "Week", "Month", "Year", //
            "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR",
        ];
        LyftUnit::ALL.map(LyftUnit::name).into_iter().chain(OTHERS).map(|name| (name, "")).collect()
    }
}

const LIMIT: Shape = Shape::Any(&[Shape::Rate, Shape::Map(LimitFields::place)]);
const PER: Shape = Shape::Any(&[Shape::Text, Shape::Map(PerFields::place)]);
const TEXTS: Shape = Shape::Any(&[Shape::Text, Shape::List(&Shape::Text)]);
const GROUPS: Shape = Shape::Any(&[Shape::Conditions, Shape::List(&Shape::Conditions)]);
const CONSISTENCIES: Shape = Shape::Any(&[Shape::Word(&CONSISTENCY), Shape::Map(ConsistencyFields::place)]);
const REACTION: Shape = Shape::Any(&[Shape::Word(&ON_LIMIT), Shape::Map(OnLimitFields::place)]);
const INITIALLY: Shape = Shape::Any(&[Shape::Word(&INITIAL), Shape::Count]);
const SHARE: Shape = Shape::Any(&[Shape::Count, Shape::Text]);
const MOST: Shape = Shape::Any(&[Shape::Count, Shape::Word(&MOST_CONCURRENT), Shape::Map(MostFields::place)]);
const TREE: Shape = Shape::List(&Shape::Map(DescriptorFields::place));

/// A place as a struct.
pub(crate) trait Fields<'a>: Default {
    /// What is known about it.
    fn place() -> &'static Place;
    /// The room for the field of this name.
    fn slot(&mut self, name: &str) -> Option<&mut Slot<'a>>;
    /// The fields that were written, each with its description.
    fn written(&self) -> Vec<(&'static Field, Written<'a>)>;
}

macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

macro_rules! places {
    ($(
        $(#[doc = $doc:literal])+
        $Place:ident = $dialect:ident $name:literal $whereabouts:literal $(with $group:ident: $Group:ident)? {
            $($field:ident $(as $text:literal)? $(or $alias:literal)?: $shape:expr, $help:literal $(, only $only:expr)?;)*
        }
    )*) => {$(
        $(#[doc = $doc])+
        #[derive(Default)]
        pub(crate) struct $Place<'a> {
            $(pub(crate) $field: Slot<'a>,)*
            $(pub(crate) $group: $Group<'a>,)?
        }

        impl<'a> Fields<'a> for $Place<'a> {
            fn place() -> &'static Place {
                #[allow(unused_imports, reason = "not every place has options of algorithms")]
                use Method::{Concurrency, FixedWindow, LeakyBucket, LeakyMeter, Pacing, SlidingLog, SlidingWindow, TokenBucket};
                static PLACE: Place = Place {
                    name: $name,
                    whereabouts: $whereabouts,
                    doc: concat!($($doc),+),
                    dialect: Dialect::$dialect,
                    own_fields: &[$(Field {
                        name: name!($field $($text)?),
                        alias: [$(Some($alias),)? None][0],
                        shape: $shape,
                        doc: $help,
                        only: [$(&$only as &[Method],)? &[]][0],
                    },)*],
                    shared: [$(Some(<$Group<'static>>::place as fn() -> &'static Place),)? None][0],
                };
                &PLACE
            }

            fn slot(&mut self, name: &str) -> Option<&mut Slot<'a>> {
                $(if name == name!($field $($text)?) $(|| name == $alias)? {
                    return Some(&mut self.$field);
                })*
                let shared: [Option<&mut Slot<'a>>; _] = [$(self.$group.slot(name),)?];
                shared.into_iter().flatten().next()
            }

            fn written(&self) -> Vec<(&'static Field, Written<'a>)> {
                let slots: [Slot<'a>; _] = [$(self.$field),*];
                let own = Self::place().own_fields.iter().zip(slots);
                let own = own.filter_map(|(field, slot)| Some((field, slot?)));
                own$(.chain(self.$group.written()))?.collect()
            }
        }
    )*};
}

mod tokens;

pub(crate) use tokens::{JWT_ALGORITHM, JwtFields, NO_TOKENS};

places! {
    /// A file of rate limit rules.
    RootFields = Lyft "file" "at the top of the file" {
        domain: Shape::Text, "Whose rules these are. A request names its domain; `default` if the file has only `rules`.";
        descriptors: TREE, "A tree of rules, as for envoyproxy/ratelimit.";
        rules: Shape::List(&Shape::Map(RuleFields::place)), "Rules, each of them complete.";
        defaults: Shape::Map(DefaultsFields::place), "What holds for every rule of this file that says nothing else.";
        exempt: GROUPS, "What no rule of this file is for: a list of conditions, of which one has to hold as a whole.";
        settings: Shape::Free, "For `tollgate gateway`: its options, by the names of the flags.";
        upstreams: Shape::List(&Shape::Map(UpstreamFields::place)), "For `tollgate gateway`: groups of servers.";
        routes: Shape::List(&Shape::Map(RouteFields::place)), "For `tollgate gateway`: which requests go to which servers.";
        consumers: Shape::List(&Shape::Map(ConsumerFields::place)), "For `tollgate gateway`: who is known by which key.";
        jwt: Shape::Map(JwtFields::place), "For `tollgate gateway`: how JSON Web Tokens are verified, for routes that say nothing else.";
    }

    /// Servers that do the same.
    UpstreamFields = Own "upstream" "in an upstream" {
        name: Shape::Text, "What routes call it.";
        servers or "server": TEXTS, "Where they are: `http://127.0.0.1:9000`, `https://api.example.com`, `unix:/run/api.sock`.";
        health: Shape::Any(&[Shape::Text, Shape::Map(HealthFields::place)]),
            "How to find out whether a server is well: a path that is asked for every five seconds, or more in detail.";
        connect_timeout: Shape::Time, "How long a connection may take to come about: `5s` if not given.";
        timeout: Shape::Time, "How long a server may be silent while an answer is expected: `60s` if not given.";
        tunnel_timeout: Shape::Time, "How long nothing may pass through a tunnel (a WebSocket): `1h` if not given.";
        ca: Shape::Text, "A file with the certificates that vouch for https servers; those of the system if not given.";
        within: TEXTS, "Where its servers may be, whatever their names lead to: `public`, `private`, `loopback`, `link_local`, or networks. Anywhere if not given.";
        overload: Shape::Map(OverloadFields::place), "How many requests it is given at a time, and who goes without.";
    }

    /// How many requests an upstream is given at a time, and what becomes of the others.
    OverloadFields = Own "overload" "in `overload`" {
        max_concurrent: MOST, "How many at a time: a number, `adaptive`, or `{min: 10, max: 500}`.";
        reserved: Shape::Map(ReservedFields::place), "What is kept for requests of a priority, whatever the others do.";
        queue: Shape::Count, "How many others may wait: none if not given.";
        max_wait: Shape::Time, "How long one may wait: `1s` if not given.";
        order: Shape::Word(&ORDER), "Who is served first of those that wait, among equals.";
    }

    /// Between what an adaptive number stays.
    MostFields = Own "max_concurrent" "in `max_concurrent`" {
        min: Shape::Count, "Never fewer: 10 if not given.";
        max: Shape::Count, "Never more: 1,000 if not given.";
    }

    /// What is kept for requests of each priority: a number, or a share such as `20%`.
    ReservedFields = Own "reserved" "in `reserved`" {
        low: SHARE, "For the first to go without.";
        normal: SHARE, "For those that nothing is said about.";
        high: SHARE, "For those before them.";
        critical: SHARE, "For the last to go without.";
    }

    /// How to find out whether a server is well.
    HealthFields = Own "health" "in `health`" {
        path: Shape::Text, "What to ask for; a status below 400 is well.";
        every: Shape::Time, "How often: `5s` if not given.";
        timeout: Shape::Time, "How long it may take: `2s` if not given.";
        failures: Shape::Count, "After how many failures in a row it is not asked any more: 2 if not given.";
        successes: Shape::Count, "After how many successes in a row it is asked again: 1 if not given.";
    }

    /// Which requests go where.
    RouteFields = Own "route" "in a route" {
        name: Shape::Text, "What it is called: the attribute `route`, for rules.";
        hosts or "host": TEXTS, "Names of hosts, such as `api.example.com` or `*.example.com`; any if not given.";
        paths or "path": TEXTS, "Beginnings of paths, such as `/v1`; any if not given.";
        methods or "method": TEXTS, "Methods; any if not given.";
        upstream: Shape::Text, "Where it leads: the name of an upstream, or the address of a server.";
        strip_path: Shape::Flag, "Leave out the beginning of the path that the route names.";
        preserve_host: Shape::Flag, "Tell the server the host that the client asked for, not its own.";
        encoded_slash: Shape::Flag, "Let paths pass in which a slash is escaped (`%2F`), if they are this route's either way; others get 400.";
        upgrades or "upgrade": TEXTS, "What may be spoken after an upgrade: `websocket` if not given. Other wishes are not passed on.";
        attributes: Shape::Free, "What rules are told of such requests beside what is in them, such as `{plan: free}`.";
        cost: Shape::Any(&[Shape::Count, Shape::Map(CostFields::place)]), "What a request costs: 1 if not given.";
        allow: TEXTS, "Addresses and networks that may ask; anybody if not given.";
        deny: TEXTS, "Addresses and networks that may not.";
        api_key: TEXTS, "Names of headers or parameters of the query in which a consumer's key has to be; others get 401.";
        denied: Shape::Map(DeniedFields::place), "What a client is told that is over a limit, instead of the usual.";
        priority: Shape::Word(&PRIORITY), "What matters more when an upstream has too much to do; that of the rules if not given.";
        later: Shape::Map(LaterFields::place), "How requests are kept and done later whose limit says `on_limit: enqueue`.";
        jwt: Shape::Any(&[Shape::Word(&NO_TOKENS), Shape::Map(JwtFields::place)]), "How JSON Web Tokens are verified; as at the top of the file if not given.";
    }

    /// How requests are kept that are done later.
    LaterFields = Own "later" "in `later`" {
        most_waiting: Shape::Count, "How many may wait for one counter: 1000 if not given.";
        most_body: Shape::Count, "The largest body that is kept, such as `64kB`: `1MiB` if not given.";
        attempts: Shape::Count, "How often a server may fail at one before it is put aside: 5 if not given.";
        repeat: Shape::Flag, "Send again what may have been done already, such as a POST that nobody answered.";
        give_up: Shape::Time, "How long one may wait for a server that cannot be reached: `1d` if not given.";
        keep: Shape::Time, "How long the answer to one can be asked for: `1h` if not given.";
    }

    /// What a client is told that is over a limit.
    DeniedFields = Own "denied" "in `denied`" {
        status: Shape::Count, "The status: 429 if not given.";
        body: Shape::Text, "The body, whatever the client would like to have.";
        content_type: Shape::Text, "What kind of text that is: `application/json` if not given.";
        headers: Shape::Any(&[Shape::Word(&HEADER_FAMILY), Shape::List(&Shape::Word(&HEADER_FAMILY))]),
            "Which headers tell of limits, on every answer of the route.";
    }

    /// Somebody who is known by a key.
    ConsumerFields = Own "consumer" "in a consumer" {
        name: Shape::Text, "What it is called: the attribute `consumer`, for rules.";
        keys or "key": TEXTS, "Its keys, or what SHA-256 makes of them: `sha256:…`.";
        attributes: Shape::Free, "What rules are told of its requests beside what is in them, such as `{plan: gold}`.";
    }

    /// Where the cost of a request is written.
    CostFields = Own "cost" "in `cost`" {
        header: Shape::Text, "A header of the request.";
        response_header: Shape::Text, "A header of the answer, charged when it is there.";
    }

    /// What holds for every rule of this file that says nothing else.
    DefaultsFields = Own "defaults" "in `defaults`" with settings: SettingFields {}

    /// What a rule may say and a file may say for all of its rules.
    SettingFields = Own "settings" "in a rule" {
        mode: Shape::Word(&MODE), "Whether the limits bind.";
        priority: Shape::Word(&PRIORITY), "What matters more when there is not enough for all.";
        consistency: CONSISTENCIES, "How exact the limits are between servers.";
        on_store_failure: Shape::Word(&STORE_FAILURE), "What happens when the shared store cannot be reached.";
        on_limit: REACTION, "What happens to a request that is over a limit.";
        algorithm: Shape::Word(&ALGORITHM), "How limits count that do not say it themselves.";
    }

    /// What a rule says, flat or in the tree.
    PolicyFields = Own "policy" "in a rule" with settings: SettingFields {
        name: Shape::Text, "What the rule is called in answers, metrics and logs.";
        limits: Shape::Any(&[LIMIT, Shape::List(&LIMIT)]),
            "How much: `5/s`, a list such as `[5/s, 100000/h]` of which all have to hold, or `unlimited`.";
        unless: GROUPS, "What the rule is not for: conditions that hold together, or a list of such.";
    }

    /// One node of the tree: a key, perhaps with a value, of what a request says.
    DescriptorFields = Lyft "descriptor" "in a descriptor" with policy: PolicyFields {
        key: Shape::Text, "Which key; `*` stands for anything.";
        value or "Value": Shape::Pattern, "Which value of it, `*` standing for anything; every value if not given.";
        rate_limit: Shape::Map(RateLimitFields::place), "How much, in the way of envoyproxy/ratelimit.";
        descriptors: TREE, "What may come after this key.";
        shadow_mode: Shape::Flag, "Count and report, and deny nothing.";
        quota_mode: Shape::Flag, "Deny only when all such descriptors of a request are over their limits.";
        detailed_metric: Shape::Flag, "Metrics name the values of all entries.";
        value_to_metric: Shape::Flag, "Metrics name the value of this entry.";
        share_threshold: Shape::Flag, "All values that match the wildcard share one counter.";
        metadata: Shape::Free, "Told to the proxy when the request passes.";
    }

    /// How much, in the way of envoyproxy/ratelimit: a fixed window in which denied requests count too.
    RateLimitFields = Lyft "rate_limit" "in `rate_limit`" {
        unit: Shape::Word(&LyftUnits), "Per which time.";
        requests_per_unit: Shape::Count, "How many.";
        unlimited: Shape::Flag, "As many as anyone likes.";
        name: Shape::Text, "For `replaces` of others.";
        replaces: Shape::List(&Shape::Map(ReplacesFields::place)), "Limits that do not count when this one applies.";
    }

    /// A limit that does not count when this one applies.
    ReplacesFields = Lyft "replaces" "in an item of `replaces`" {
        name: Shape::Text, "The name of the limit.";
    }

    /// A rule: what has to be in a request, what is counted apart, and how much.
    RuleFields = Own "rule" "in a rule" with policy: PolicyFields {
        when: Shape::Conditions, "What a request has to be for the rule to apply.";
        per: Shape::Any(&[PER, Shape::List(&PER)]),
            "Each value of these keys is counted by itself; `ip/64` counts IPv6 addresses by network.";
    }

    /// A key that is counted by network.
    PerFields = Own "per" "in an item of `per`" {
        key: Shape::Text, "Which key; its values are addresses.";
        v4: Shape::Count, "How many of the 32 bits of an IPv4 address are looked at.";
        v6: Shape::Count, "How many of the 128 bits of an IPv6 address are looked at.";
    }

    /// A limit in detail.
    LimitFields = Own "limit" "in a limit" {
        rate: Shape::Rate, "How much in which time: `5/s`, `300/3h`, `1MiB/s`, `10/day@Europe/Berlin`.",
            only [SlidingWindow, TokenBucket, LeakyBucket, LeakyMeter, FixedWindow, SlidingLog, Pacing];
        algorithm: Shape::Word(&ALGORITHM), "How it counts.";
        counts: Shape::Text, "What it counts, such as `bytes` or `tokens`; requests if not given.";
        name: Shape::Text, "Tells it from the rule's other limits.";
        on_limit: REACTION, "What happens to a request that is over it.";
        soft: Shape::Map(SoftFields::place), "It may be exceeded by a little, for a while.";
        burst: Shape::Count, "How much may come at once after a pause.", only [TokenBucket, LeakyMeter];
        refill: Shape::Word(&REFILL), "How tokens flow in.", only [TokenBucket];
        initial: INITIALLY, "What a new bucket holds.", only [TokenBucket];
        borrow: Shape::Count, "How many tokens of the future may be spent now.", only [TokenBucket];
        queue: Shape::Count, "How many may wait.", only [LeakyBucket];
        max_wait: Shape::Time, "How long one may wait at most.", only [LeakyBucket];
        anchor: Shape::Word(&ANCHOR), "When a window begins.", only [FixedWindow];
        spread: Shape::Flag, "Windows of different keys begin at different times.", only [FixedWindow, Pacing];
        record_rejected: Shape::Flag, "Denied requests count too.", only [FixedWindow, SlidingLog];
        min_interval: Shape::Time, "At most one in this time after the last; instead of a rate.", only [FixedWindow];
        scale_to: Shape::Count, "Remember at most so many requests, in a shorter window of the same rate.", only [SlidingLog];
        rounding: Shape::Word(&ROUNDING), "What happens to the fraction of the estimate.", only [SlidingWindow];
        sub_windows: Shape::Count, "Into how many counters the window is divided: more are more exact.", only [SlidingWindow];
        concurrency: Shape::Count, "How many at the same time; instead of a rate.", only [Concurrency];
        lease: Shape::Time, "After how long one that was not given back is free again: `60s` if not given.", only [Concurrency];
        slack: Shape::Count, "How far spending may be ahead of the straight line.", only [Pacing];
    }

    /// By how much a limit may be exceeded, and for how long.
    SoftFields = Own "soft" "in `soft`" {
        overage: Shape::Count, "By how much.";
        lasting as "for": Shape::Time, "For how long after the first request above the limit.";
    }

    /// What happens to a request that is over a limit.
    OnLimitFields = Own "on_limit" "in `on_limit`" {
        delay: Shape::Time, "It waits until it fits, at most this long.";
        order: Shape::Word(&ORDER), "Who is served first of those that wait.";
        reject_slowly: Shape::Time, "It is refused after this long.";
    }

    /// How exact the limits are between servers.
    ConsistencyFields = Own "consistency" "in `consistency`" {
        sync: Shape::Time, "Each server decides by itself, and they tell each other this often.";
    }

    /// What a value may be like, in detail.
    PatternFields = Own "pattern" "in a pattern" {
        is: TEXTS, "This text, or one of these, with no meaning to `*` or addresses.";
        prefix: TEXTS, "What begins with this, or one of these.";
        cidr: TEXTS, "An address in this network, or one of these.";
        not: Shape::Pattern, "Anything else.";
    }
}

/// All places, the most likely homes of a stray field first.
pub(crate) const PLACES: [fn() -> &'static Place; 23] = [
    RootFields::place,
    DescriptorFields::place,
    RateLimitFields::place,
    RuleFields::place,
    LimitFields::place,
    DefaultsFields::place,
    SoftFields::place,
    OnLimitFields::place,
    ConsistencyFields::place,
    PerFields::place,
    PatternFields::place,
    ReplacesFields::place,
    RouteFields::place,
    UpstreamFields::place,
    HealthFields::place,
    CostFields::place,
    DeniedFields::place,
    LaterFields::place,
    ConsumerFields::place,
    JwtFields::place,
    OverloadFields::place,
    MostFields::place,
    ReservedFields::place,
];

impl Place {
    /// The field of this place that holds `other`, if one does.
    pub(crate) fn holds(&self, other: &Place) -> Option<&'static str> {
        fn holds(shape: &Shape, other: &Place) -> bool {
            match shape {
                Shape::Map(place) => std::ptr::eq(place(), other),
                Shape::List(shape) => holds(shape, other),
                Shape::Any(shapes) => shapes.iter().any(|shape| holds(shape, other)),
                _ => false,
            }
        }
        self.fields().find(|field| holds(&field.shape, other)).map(|field| field.name)
    }
}
