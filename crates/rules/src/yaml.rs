//! YAML as a tree that remembers where everything was written.
//!
//! A file is read whole and bounded first: so many nodes, so deep, aliases counted as what they stand for. An alias
//! shares the node of its anchor, so a bomb of aliases costs nothing to hold and is refused before anyone walks it.
//! What the values mean is for others to say; scalars keep their text.

mod syntax;

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marked};

use crate::diagnostic::{Diagnostic, Span};
use crate::pattern::text_size;

/// The longest file that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// The most nodes of one file, each counted as often as aliases repeat it, and a long text as several: as many rules as
/// a file may have have 32 each.
pub(crate) const MAX_NODES: usize = 1 << 22;
/// The deepest nesting; an alias is as deep as what it stands for. Whoever walks a tree may recurse.
pub(crate) const MAX_DEPTH: usize = 64;

/// Something written in a file.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A word, with or without quotes.
    Scalar {
        text: Arc<str>,
        quoted: bool,
    },
    List(Box<[Node]>),
    /// Keys and values in the order they were written, repeated ones included.
    Map(Box<[(Node, Node)]>),
    /// What an anchor elsewhere stands for.
    Alias(Arc<Node>),
}

impl Node {
    /// The node itself, or what it is an alias of. The span of an alias is where it is used.
    pub(crate) fn kind(&self) -> &Kind {
        match &self.kind {
            Kind::Alias(node) => node.kind(),
            kind => kind,
        }
    }

    /// A scalar's text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self.kind() {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether nothing was written: no text, `~` or `null`, without quotes.
    pub(crate) fn is_null(&self) -> bool {
        match self.kind() {
            Kind::Scalar { text, quoted: false } => matches!(&**text, "" | "~" | "null" | "Null" | "NULL"),
            _ => false,
        }
    }

    /// In a message: "a list", "a mapping", "nothing", "`text`".
    pub(crate) fn describe(&self) -> String {
        match self.kind() {
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
            _ if self.is_null() => "nothing".to_owned(),
            Kind::Scalar { text, .. } if text.chars().count() > 40 => {
                format!("`{}…`", text.chars().take(40).collect::<String>())
            }
            Kind::Scalar { text, .. } => format!("`{text}`"),
            Kind::Alias(_) => "an alias".to_owned(),
        }
    }
}

/// The first document of a file.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// What it says; `None` when there is none.
    pub(crate) root: Option<Node>,
    /// Where a second one begins, which nobody reads.
    pub(crate) second: Option<Span>,
}

impl Document {
    /// The domain that it is written for, if it says so.
    pub(crate) fn domain(&self) -> Option<&str> {
        let Kind::Map(fields) = self.root.as_ref()?.kind() else { return None };
        let (_, domain) = fields.iter().rfind(|(key, _)| key.text() == Some("domain"))?;
        domain.text().filter(|text| !text.is_empty() && !domain.is_null())
    }
}

/// Reads the first document of `text`.
pub(crate) fn read(source: u32, text: &str) -> Result<Document, Box<Diagnostic>> {
    if text.len() > MAX_BYTES {
        let whole = Span { source, start: 0, end: 0 };
        let message = format!("the file has {} MiB; at most {} are read", text.len() >> 20, MAX_BYTES >> 20);
        return Err(Diagnostic::error("too-large", whole, message).help("split it into several files").into());
    }
    let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let mut reader = Reader {
        source,
        text,
        length,
        anchors: HashMap::new(),
        nodes: 0,
        pending: Vec::new(),
        texts: Texts::default(),
    };
    let mut events = Parser::new_from_str(text);
    while let Some(event) = events.next_event() {
        match event.map_err(|error| reader.syntax(&error))? {
            (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(Document::default()),
            (event, place) => {
                let open = reader.open(event, place, 0)?;
                let root = Some(reader.build(open, &mut events)?);
                return Ok(Document { root, second: reader.second(&mut events)? });
            }
        }
    }
    Ok(Document::default())
}

struct Reader<'t> {
    source: u32,
    text: &'t str,
    /// In characters.
    length: u32,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    /// The nodes of all collections that are not complete, one after the other; keys and values in turn.
    pending: Vec<Node>,
    texts: Texts,
}

#[derive(Clone)]
struct Anchored {
    node: Arc<Node>,
    /// How many nodes it stands for.
    size: usize,
    /// How many levels it has below itself.
    height: usize,
}

/// A node and how many levels it has below itself.
struct Done {
    node: Node,
    height: usize,
}

/// A collection that is being read.
struct Collection {
    span: Span,
    anchor: usize,
    is_map: bool,
    height: usize,
    /// How many nodes there were before it.
    before: usize,
    /// Where its own begin among those that are pending.
    start: usize,
}

/// A node that has begun.
enum Open {
    Collection(Collection),
    Done(Done),
}

/// Texts that came up lately, to be shared: files say the same few words again and again.
struct Texts {
    recent: Vec<Option<Arc<str>>>,
    hasher: DefaultHashBuilder,
}

/// How many are remembered. A power of two.
const RECENT: usize = 1 << 10;

impl Default for Texts {
    fn default() -> Self {
        Self { recent: vec![None; RECENT], hasher: DefaultHashBuilder::default() }
    }
}

impl Texts {
    fn share(&mut self, text: &str) -> Arc<str> {
        let place = self.hasher.hash_one(text) as usize % RECENT;
        match &mut self.recent[place] {
            Some(known) if **known == *text => Arc::clone(known),
            other => Arc::clone(other.insert(text.into())),
        }
    }
}

impl Reader<'_> {
    /// Never beyond the end, which the parser is after directives that are not ASCII.
    fn at(&self, index: usize) -> u32 {
        u32::try_from(index).unwrap_or(u32::MAX).min(self.length)
    }

    fn span(&self, place: Marked) -> Span {
        Span { source: self.source, start: self.at(place.start.index()), end: self.at(place.end.index()) }
    }

    fn syntax(&self, error: &ScanError) -> Diagnostic {
        let spot = |index| Span { source: self.source, start: self.at(index), end: self.at(index + 1) };
        let (index, why) = (error.marker().index(), error.info());
        if why.contains("recursion") {
            return too_deep(spot(index));
        }
        syntax::syntax(self.text, index, why, spot)
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), Box<Diagnostic>> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            let message = format!("the file stands for more than {MAX_NODES} values");
            let help = "an alias counts as everything that its anchor holds; split the file or use fewer aliases";
            return Err(Diagnostic::error("too-large", span, message).help(help).into());
        }
        Ok(())
    }

    /// Begins a node that is `depth` levels below the root.
    fn open(&mut self, event: Event<'_>, place: Marked, depth: usize) -> Result<Open, Box<Diagnostic>> {
        let span = self.span(place);
        let check_depth = |height: usize| match depth + height > MAX_DEPTH {
            true => Err(Box::new(too_deep(span))),
            false => Ok(()),
        };
        check_depth(0)?;
        let before = self.nodes;
        self.count(if let Event::Scalar(text, ..) = &event { text_size(text.len()) } else { 1 }, span)?;
        let start = self.pending.len();
        let collection =
            |anchor, is_map| Open::Collection(Collection { span, anchor, is_map, height: 0, before, start });
        Ok(match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let kind =
                    Kind::Scalar { text: self.texts.share(&text), quoted: style != ScalarStyle::Plain || is_text };
                Open::Done(self.anchored(Done { node: Node { span, kind }, height: 0 }, anchor, before))
            }
            Event::SequenceStart(anchor, _) => collection(anchor, false),
            Event::MappingStart(anchor, _) => collection(anchor, true),
            Event::Alias(anchor) => {
                let Some(Anchored { node, size, height }) = self.anchors.get(&anchor).cloned() else {
                    let error = Diagnostic::error("yaml", span, "this alias is inside its own anchor");
                    return Err(error.help("an anchor cannot stand for itself: write something else here").into());
                };
                self.count(size, span)?;
                check_depth(height)?;
                Open::Done(Done { node: Node { span, kind: Kind::Alias(node) }, height })
            }
            _ => {
                let error = Diagnostic::error("yaml", span, "this is not YAML: a value was expected here");
                return Err(error.help("write a value, or remove the line").into());
            }
        })
    }

    /// Remembers a node that has an anchor.
    fn anchored(&mut self, done: Done, anchor: usize, before: usize) -> Done {
        if anchor == 0 {
            return done;
        }
        let Done { node, height } = done;
        let (span, node) = (node.span, Arc::new(node));
        self.anchors.insert(anchor, Anchored { node: Arc::clone(&node), size: self.nodes - before, height });
        Done { node: Node { span, kind: Kind::Alias(node) }, height }
    }

    /// Reads on until `open` and all that it holds is complete. A stack of our own, so that depth is ours to bound.
    fn build<'t, T: saphyr_parser::Input>(
        &mut self,
        open: Open,
        events: &mut Parser<'t, T>,
    ) -> Result<Node, Box<Diagnostic>> {
        let mut stack = Vec::with_capacity(MAX_DEPTH);
        let mut open = open;
        loop {
            let done = match open {
                Open::Collection(collection) => {
                    stack.push(collection);
                    None
                }
                Open::Done(done) => Some(done),
            };
            // A finished node goes into the collection below it.
            if let Some(Done { node, height }) = done {
                let Some(below) = stack.last_mut() else { return Ok(node) };
                below.height = below.height.max(height + 1);
                self.pending.push(node);
            }
            let (event, place) = match events.next_event() {
                Some(event) => event.map_err(|error| self.syntax(&error))?,
                None => {
                    let end = Span { source: self.source, start: 0, end: 0 };
                    let error = Diagnostic::error("yaml", end, "the file ends in the middle of a value");
                    return Err(error.help("write the rest of it").into());
                }
            };
            open = match event {
                Event::SequenceEnd | Event::MappingEnd => {
                    let Some(Collection { span, anchor, is_map, height, before, start }) = stack.pop() else {
                        let error = Diagnostic::error("yaml", self.span(place), "this closes nothing");
                        return Err(error.help("remove it").into());
                    };
                    let kind = self.complete(start, is_map);
                    let node = Node { span: Span { end: self.span(place).start, ..span }, kind };
                    Open::Done(self.anchored(Done { node, height }, anchor, before))
                }
                event => self.open(event, place, stack.len())?,
            };
        }
    }

    /// A collection of what is pending from `start` on, in no more memory than it needs.
    fn complete(&mut self, start: usize, is_map: bool) -> Kind {
        let mut nodes = self.pending.drain(start..);
        if !is_map {
            return Kind::List(nodes.collect());
        }
        let mut pairs = Vec::with_capacity(nodes.len() / 2);
        while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
            pairs.push((key, value));
        }
        Kind::Map(pairs.into_boxed_slice())
    }

    /// Where another document begins after the one that was read. Whether it is good YAML is of no interest; what
    /// follows and is no document belongs to the first, which ended too early.
    fn second<'t, T: saphyr_parser::Input>(&self, events: &mut Parser<'t, T>) -> Result<Option<Span>, Box<Diagnostic>> {
        loop {
            match events.next_event() {
                Some(Ok((Event::DocumentEnd, _))) => {}
                Some(Ok((Event::DocumentStart(_), place))) => return Ok(Some(self.span(place))),
                Some(Ok(_)) | None => return Ok(None),
                Some(Err(error)) => {
                    let error = Diagnostic {
                        message: "the value of this file ends before this".to_owned(),
                        ..self.syntax(&error)
                    };
                    let help = "check what is before it: a bracket that closes too early, or an indentation; another document begins with `---`";
                    return Err(Box::new(error.help(help)));
                }
            }
        }
    }
}

fn too_deep(place: Span) -> Diagnostic {
    Diagnostic::error("too-deep", place, format!("nested more than {MAX_DEPTH} deep"))
        .help("write it with fewer levels")
}
