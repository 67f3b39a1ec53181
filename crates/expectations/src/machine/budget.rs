//! Shares the limit of effects in flight, of one kind, among NodeSets.
//!
//! A NodeSet that is granted nothing gets a place in a first-come queue, and one op is reserved for each place ahead of
//! a requester. So large requests cannot starve small ones: each place is served once before the places behind it.

use crate::messages::NodeSetName;
use std::time::Duration;

/// A NodeSet loses its place after this time without a request.
pub const PLACE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    limit: u32,
    in_flight: u32,
    /// Number of NodeSets with ops in flight.
    holders: u32,
    /// In order of arrival.
    places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    nodeset: NodeSetName,
    requested_at: Duration,
}

impl Budget {
    pub fn new(limit: u32) -> Self {
        Self { limit, in_flight: 0, holders: 0, places: Vec::new() }
    }

    /// Puts as many of the requested ops in flight as the NodeSet may have; if none, the NodeSet gets a place.
    pub fn acquire(&mut self, nodeset: &NodeSetName, requested: u32, now: Duration) -> u32 {
        if requested == 0 {
            return 0;
        }
        let place = self.places.iter().position(|place| place.nodeset == *nodeset);
        let granted = requested.min(self.available(place));
        match place {
            Some(place) if granted > 0 => drop(self.places.remove(place)),
            None if granted == 0 => self.places.push(Place { nodeset: nodeset.clone(), requested_at: now }),
            Some(_) | None => {}
        }
        self.in_flight += granted;
        self.holders += u32::from(granted > 0);
        granted
    }

    /// The maximum that a NodeSet with this place, or without one, may get now.
    fn available(&self, place: Option<usize>) -> u32 {
        let places = count(self.places.len());
        let ahead = place.map_or(places, count);
        let contenders = self.holders + places + u32::from(place.is_none());
        let share = self.limit.div_ceil(contenders).max(1);
        // A crashed holder blocks at most half of the limit.
        let half = (self.limit / 2).max(1);
        self.free().saturating_sub(ahead).min(share).min(half)
    }

    fn free(&self) -> u32 {
        self.limit.saturating_sub(self.in_flight)
    }

    /// Returns the ops of a batch that ended.
    pub fn release(&mut self, granted: u32) {
        self.in_flight -= granted;
        self.holders -= u32::from(granted > 0);
    }

    /// Keeps the place of a NodeSet that requests ops of this kind, independent of the answer.
    pub fn keep_place(&mut self, nodeset: &NodeSetName, requested: u32, now: Duration) {
        if requested > 0
            && let Some(place) = self.places.iter_mut().find(|place| place.nodeset == *nodeset)
        {
            place.requested_at = now;
        }
    }

    pub fn expire_places(&mut self, now: Duration) {
        self.places.retain(|place| now.saturating_sub(place.requested_at) < PLACE_TIMEOUT);
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl Budget {
    /// Ops in flight, and the number of NodeSets that have any.
    pub fn usage(&self) -> (u32, u32) {
        (self.in_flight, self.holders)
    }

    /// NodeSets with a place, in order of arrival.
    pub fn queue(&self) -> Vec<&NodeSetName> {
        self.places.iter().map(|place| &place.nodeset).collect()
    }
}
