//! Shares out what may be in flight of one kind of effect.
//!
//! A NodeSet that got nothing takes a place in a first-come queue, and one op is kept for each place ahead of whoever
//! asks. So the greedy cannot starve the modest: each is served once before anybody behind it is served.

use crate::messages::NodeSetName;
use std::time::Duration;

/// A NodeSet that does not ask any more gives its place up.
pub const PLACE_LOST_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    limit: u32,
    in_flight: u32,
    /// NodeSets that have something in flight.
    holders: u32,
    /// In the order in which they came.
    places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    nodeset: NodeSetName,
    asked_at: Duration,
}

impl Budget {
    pub fn new(limit: u32) -> Self {
        Self { limit, in_flight: 0, holders: 0, places: Vec::new() }
    }

    /// Takes as many as there are for this NodeSet; a place in the queue if there are none.
    pub fn take(&mut self, nodeset: &NodeSetName, asked: u32, now: Duration) -> u32 {
        if asked == 0 {
            return 0;
        }
        let place = self.places.iter().position(|place| place.nodeset == *nodeset);
        let granted = asked.min(self.offer(place));
        match place {
            Some(place) if granted > 0 => drop(self.places.remove(place)),
            None if granted == 0 => self.places.push(Place { nodeset: nodeset.clone(), asked_at: now }),
            Some(_) | None => {}
        }
        self.in_flight += granted;
        self.holders += u32::from(granted > 0);
        granted
    }

    /// The most that a NodeSet with this place, or without one, may get now.
    fn offer(&self, place: Option<usize>) -> u32 {
        let places = count(self.places.len());
        let ahead = place.map_or(places, count);
        let rivals = self.holders + places + u32::from(place.is_none());
        let share = self.limit.div_ceil(rivals).max(1);
        // A holder that crashes keeps half of the limit from the others at most.
        let half = (self.limit / 2).max(1);
        self.free().saturating_sub(ahead).min(share).min(half)
    }

    fn free(&self) -> u32 {
        self.limit.saturating_sub(self.in_flight)
    }

    /// Returns what a batch that ended had in flight.
    pub fn release(&mut self, granted: u32) {
        self.in_flight -= granted;
        self.holders -= u32::from(granted > 0);
    }

    /// A NodeSet that asks keeps its place, whatever the answer.
    pub fn keep_place(&mut self, nodeset: &NodeSetName, asked: u32, now: Duration) {
        if asked > 0
            && let Some(place) = self.places.iter_mut().find(|place| place.nodeset == *nodeset)
        {
            place.asked_at = now;
        }
    }

    pub fn drop_lost_places(&mut self, now: Duration) {
        self.places.retain(|place| now.saturating_sub(place.asked_at) < PLACE_LOST_AFTER);
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl Budget {
    /// What is in flight, and of how many NodeSets.
    pub fn used(&self) -> (u32, u32) {
        (self.in_flight, self.holders)
    }

    /// Who waits, the first to be served first.
    pub fn queue(&self) -> Vec<&NodeSetName> {
        self.places.iter().map(|place| &place.nodeset).collect()
    }
}
