//! The job: what was asked, how far it has come, and what happens next. Pure data and pure steps; the Job object in the
//! edge ring stores what these functions return and does the effects they name.

pub mod broken;
pub mod claim;
pub mod draft;
pub mod envelope;
pub mod history;
pub mod id;
pub mod listing;
pub mod notice;
pub mod record;
pub mod redrive;
pub mod schedule;
pub mod settlement;
pub mod spec;
pub mod state;

pub use broken::{Broken, Kept};
pub use claim::{Begun, Claim, Claimed, Renewal, Token};
pub use draft::{Discarded, Interruption};
pub use envelope::Envelope;
pub use id::JobId;
pub use listing::{Row, Standing};
pub use notice::{News, Notice, Progress, Reception, Told};
pub use record::{DeferralAnswer, Record, Settled};
pub use redrive::{Redrive, Which};
pub use schedule::{Effect, Timing};
pub use settlement::{Ending, Hold, Retry, Settlement, Then};
pub use spec::{Spec, WhenInterrupted};
pub use state::{FailReason, State};
