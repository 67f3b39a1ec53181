//! Metrics of the webhook.

use operator_runtime::metrics::METRICS;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::LazyLock;
use std::time::Duration;

static REVIEWS: LazyLock<Reviews> = LazyLock::new(Reviews::new);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AnswerLabels {
    hook: &'static str,
    answer: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HookLabel {
    hook: &'static str,
}

struct Reviews {
    answers: Family<AnswerLabels, Counter>,
    durations: Family<HookLabel, Histogram, fn() -> Histogram>,
}

impl Reviews {
    fn new() -> Self {
        let reviews = Self { answers: Family::default(), durations: Family::new_with_constructor(histogram) };
        METRICS.register(|registry| {
            registry.register(
                "admission_reviews",
                "AdmissionReviews by hook and answer",
                reviews.answers.clone(),
            );
            let help = "Time to answer AdmissionReviews";
            registry.register("admission_review_duration_seconds", help, reviews.durations.clone());
        });
        reviews
    }
}

fn histogram() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0])
}

/// Counts an answer.
pub fn count(hook: &'static str, answer: &'static str, duration: Duration) {
    REVIEWS.answers.get_or_create(&AnswerLabels { hook, answer }).inc();
    REVIEWS.durations.get_or_create(&HookLabel { hook }).observe(duration.as_secs_f64());
}
