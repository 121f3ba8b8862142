//! Whether connections are taken, by the pool and by each of its addresses.

use super::control::{Control, Core};
use crate::error::Error;
use crate::event_loop::door::Intake;
use crate::event_loop::inbox::{Command, Message};
use crate::net::Address;
use crate::observe::{Event, Readiness};
use crate::sync::lock;
use std::time::Instant;

/// What is said of a pool that takes connections, or does not.
pub(super) fn readiness(intake: &Intake) -> Readiness {
    match intake {
        Intake::Open => Readiness::Serving,
        Intake::Suspended => Readiness::Suspended,
        Intake::Refusing(_) => Readiness::Refusing,
    }
}

/// Whether a pool in this state may be given another intake.
pub(super) fn may_change(readiness: &Readiness) -> bool {
    matches!(readiness, Readiness::Serving | Readiness::Suspended | Readiness::Refusing)
}

impl Core {
    pub(super) fn set_intake(&self, intake: &Intake) {
        let mut control = lock(&self.control);
        if !may_change(&control.readiness) || control.intake == *intake {
            return;
        }
        let (before, now) = (control.readiness.clone(), readiness(intake));
        // Who looks must not see it ready when a listener stops, nor before one goes on.
        if *intake != Intake::Open {
            control.readiness = now.clone();
            self.tell(&Event::ReadinessChanged(now));
            return self.pass_intake(&mut control, intake.clone());
        }
        self.pass_intake(&mut control, Intake::Open);
        control.readiness = now.clone();
        if before != now {
            self.tell(&Event::ReadinessChanged(now));
        }
    }

    /// Has every loop do so; when this returns, they do.
    pub(super) fn pass_intake(&self, control: &mut Control, intake: Intake) {
        control.intake = intake;
        if let Some(dialer) = &control.dialer {
            dialer.set_paused(control.intake != Intake::Open, Instant::now());
        }
        let inboxes: Vec<_> = control.members.iter().map(|member| member.inbox.clone()).collect();
        for member in &control.members {
            let intake = control.intake.clone();
            let dialer = if intake == Intake::Open && member.active { control.dialer.clone() } else { None };
            let order: Command = Box::new(move |event_loop| {
                event_loop.set_dialer(dialer);
                event_loop.set_intake(&intake);
            });
            let _ = member.inbox.put(Message::Command(order));
        }
        self.settle(&inboxes);
    }

    pub(super) fn set_listener_intake(&self, address: &Address, intake: &Intake) -> Result<(), Error> {
        let control = lock(&self.control);
        control.places.find(address)?.door.set_intake(intake);
        self.doors_changed(&control);
        Ok(())
    }

    /// Doors were opened or closed; when this returns, every loop knows.
    pub(super) fn doors_changed(&self, control: &Control) {
        let inboxes: Vec<_> = control.members.iter().map(|member| member.inbox.clone()).collect();
        for inbox in &inboxes {
            let _ = inbox.put(Message::Command(Box::new(|event_loop| event_loop.policy_changed())));
        }
        self.settle(&inboxes);
    }
}
