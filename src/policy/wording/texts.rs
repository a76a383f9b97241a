//! The texts: English, Japanese, Simplified Chinese.
//!
//! For somebody who wants an answer and knows nothing of queues: short, friendly, true whatever happens next, without
//! technical words, without a time and without an exclamation mark. `stalled` is true of an overload and of any other reason
//! why a job has used its attempts up, so it names none.

use super::Wording;

/// A language that there are texts in.
pub(super) struct Language {
    pub(super) tag: &'static str,
    pub(super) text: fn(Wording) -> &'static str,
}

pub(super) const BUILT_IN: [Language; 3] = [
    Language { tag: "en", text: english },
    Language { tag: "ja", text: japanese },
    Language { tag: "zh-Hans", text: simplified_chinese },
];

pub(super) const fn english(code: Wording) -> &'static str {
    match code {
        Wording::Received => "We have your request and will start on it in a moment.",
        Wording::Working => "We are working on your request.",
        Wording::Delayed => {
            "This is taking a little longer than usual. We are still on it, and you do not need to do anything."
        }
        Wording::DraftSaved => {
            "It is a little busy right now, so we have saved your draft. We will let you know as soon as your answer is ready."
        }
        Wording::Downgraded => {
            "Your answer is ready. A smaller, lightweight model wrote it this time; if you like, we can generate it again with the usual one."
        }
        Wording::Done => "Your answer is ready.",
        Wording::Stalled => {
            "We have tried several times and could not finish this yet. May it wait until a quieter time? If we do not hear from you, we will try again then."
        }
        Wording::Deferred => {
            "Your request is waiting for a quieter time. We will try again then, and you do not need to do anything."
        }
        Wording::Failed => "We are sorry, but we could not complete your request.",
        Wording::Cancelled => "This request was cancelled.",
    }
}

const fn japanese(code: Wording) -> &'static str {
    match code {
        Wording::Received => "ご依頼を受け付けました。まもなく取りかかります。",
        Wording::Working => "ただいまご依頼の作業を進めています。",
        Wording::Delayed => "いつもより少しお時間をいただいています。このままお待ちいただければ大丈夫です。",
        Wording::DraftSaved => {
            "ただいま少し混み合っているため、下書きを保存しました。回答の準備ができしだい、お知らせします。"
        }
        Wording::Downgraded => {
            "回答の準備ができました。今回は、いつもより小さな軽量モデルがお答えしています。よろしければ、いつものモデルで作り直すこともできます。"
        }
        Wording::Done => "回答の準備ができました。",
        Wording::Stalled => {
            "何度か試みましたが、まだ完了できていません。空いている時間帯までお待ちいただけますか。お返事がない場合は、その時間帯に改めて取りかかります。"
        }
        Wording::Deferred => {
            "空いている時間帯になりましたら、改めて取りかかります。このままお待ちいただければ大丈夫です。"
        }
        Wording::Failed => "申し訳ありません。ご依頼を完了できませんでした。",
        Wording::Cancelled => "このご依頼は取り消されました。",
    }
}

const fn simplified_chinese(code: Wording) -> &'static str {
    match code {
        Wording::Received => "已收到您的请求，马上就开始处理。",
        Wording::Working => "正在处理您的请求。",
        Wording::Delayed => "这次比平时稍慢一些。我们还在继续处理，您无需做任何操作。",
        Wording::DraftSaved => "现在有点忙，我们已经保存了您的草稿。结果一出来，就会通知您。",
        Wording::Downgraded => "结果已经准备好了。这次由一个更小的轻量模型完成；如果您愿意，可以用平时的模型重新生成。",
        Wording::Done => "结果已经准备好了。",
        Wording::Stalled => {
            "我们试了几次，还没能完成。可以等到不那么忙的时候再继续吗？如果没有收到您的答复，我们会在那时再试。"
        }
        Wording::Deferred => "我们会等到不那么忙的时候再次处理您的请求，您无需做任何操作。",
        Wording::Failed => "很抱歉，没能完成您的请求。",
        Wording::Cancelled => "该请求已取消。",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_its_own_text_in_every_language() {
        let mut seen = Vec::new();
        for Language { tag: language, text } in BUILT_IN {
            for code in Wording::ALL {
                let text = text(code);
                assert!(!text.trim().is_empty() && text.trim() == text, "{language} {}", code.name());
                assert!(!seen.contains(&text), "{language} {}: {text}", code.name());
                seen.push(text);
            }
        }
        assert_eq!(seen.len(), 30);
    }

    #[test]
    fn japanese_and_chinese_are_written_in_their_own_characters() {
        let is = |text: &str, from: char, to: char| text.chars().any(|c| (from..=to).contains(&c));
        for code in Wording::ALL {
            assert!(english(code).is_ascii(), "{}", code.name());
            assert!(is(japanese(code), 'ぁ', 'ん') && japanese(code).ends_with('。'), "{}", code.name());
            let chinese = simplified_chinese(code);
            assert!(is(chinese, '一', '龥') && !is(chinese, 'ぁ', 'ヿ') && chinese.ends_with('。'), "{}", code.name());
            assert!([japanese(code), chinese].iter().all(|text| !text.contains(|c: char| c.is_ascii())));
        }
    }

    #[test]
    fn no_text_promises_a_time_shouts_or_is_technical() {
        let banned = [
            "!",
            "！",
            "529",
            "429",
            "queue",
            "server",
            "overload",
            "API",
            "retry",
            "error",
            "minute",
            "second",
            "hour",
            "分",
            "秒",
            "小时",
            "服务器",
            "队列",
            "サーバ",
            "エラー",
            "キュー",
            "负载",
        ];
        for Language { tag: language, text } in BUILT_IN {
            for code in Wording::ALL {
                let text = text(code);
                let found: Vec<&str> = banned.into_iter().filter(|word| text.contains(word)).collect();
                assert!(found.is_empty(), "{language} {}: {found:?}", code.name());
                assert!(!text.contains(|c: char| c.is_numeric()), "{language} {}", code.name());
                assert!(text.chars().count() <= 160, "{language} {} is long", code.name());
            }
        }
    }

    #[test]
    fn a_long_wait_names_no_moment_at_all() {
        for word in ["soon", "moment", "shortly", "まもなく", "すぐ", "马上", "很快"] {
            for Language { tag: language, text } in BUILT_IN {
                assert!(!text(Wording::Delayed).contains(word), "{language}: {word}");
            }
        }
    }
}
