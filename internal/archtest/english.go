package archtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// bent matches phrases that read as translated: a clause in place of a noun,
// and the idioms below. Each has a plain form in the same number of words.
var bent = regexp.MustCompile(`\b(?:` + strings.Join([]string{
	`[Ww]hat (?:is|was|are|were|has|had|it|they|the|a|an|comes|came|failed|fails|becomes|happens|follows|others|nobody|somebody|operators|` +
		`MongoDB|etcd|could|can|cannot|may|must|this|that|each|another|everybody)`,
	`[Ww]hoever`, `[Ww]hom`,
	`[Ww]ho (?:is|has|had|was|may|does|did|serves|owns|reads|comes|looks|waits|gets|asks|wants|connects|must|can|cannot|needs|leads|stands)`,
	`gets? on`, `got on`, `goes on`, `go on`, `going on`, `went on`, `stands?`, `stood`, `comes? to (?:an|its|the) end`, `lets? go`,
	`be(?:ing)? told`, `(?:is|are|was|were) told`, `tells? of`, `told of`,
	`any more`, `no more`, `no longer than`, `of (?:which|whom|what|whoever)`,
	`(?:is|are|was|were|be|store|MongoDB|etcd|target) away`, `behind`,
	`(?:is|are|was|were) to (?:be|have|do|own|begin|come|get)`,
	`(?:is|are|was|were) (?:said|looked at|looked after|looked for|asked for|let alone|taken for|taken to be|left alone|had)`,
}, "|") + `)\b`)

// What a text may have of them, for each 1,000 words begun.
const (
	bentInComments  = 4
	bentInDocuments = 3
)

// CheckEnglish holds the comments of each package to plain English.
func CheckEnglish(tree []Package) (broken []string) {
	for _, p := range tree {
		var comments strings.Builder
		for _, f := range p.Files {
			if !f.Test && !f.Generated {
				comments.WriteString(f.Comments)
			}
		}
		broken = append(broken, checkText(p.Path, comments.String(), bentInComments)...)
	}
	return broken
}

// checkText returns a complaint if a text has too many bent phrases: most for each 1,000 words
// begun.
func checkText(name, text string, most int) []string {
	words := len(strings.Fields(text))
	phrases := bent.FindAllString(text, -1)
	if len(phrases) <= most*(words/1000+1) {
		return nil
	}
	slices.Sort(phrases)
	return []string{fmt.Sprintf("%s: %d bent phrases in %d words, at most %d in each 1,000; say in plain English: %q",
		name, len(phrases), words, most, slices.Compact(phrases))}
}
