//! Envoy's rate limit service, version 3, over gRPC.

use std::sync::Arc;

use crate::gate::{Door, Meter};
use crate::serve::{Drained, House, Peer, Serve, Stream};

pub(crate) struct EnvoyService {
    house: Arc<House>,
}

impl EnvoyService {
    pub(crate) fn new(house: &Arc<House>) -> Self {
        Self { house: Arc::clone(house) }
    }
}

impl Serve for EnvoyService {
    async fn serve(self: Arc<Self>, stream: Stream, peer: Peer, drained: Drained) {
        let _ = (stream, peer, drained);
    }

    fn meter(&self) -> &Meter {
        self.house.gate.meter(Door::Grpc)
    }
}
