package expr

import "testing"

// What the parser says in the terms of its grammar is said in words.
func TestErrorsOfTheParserAreInWords(t *testing.T) {
	for message, want := range map[string]string{
		"Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', NUM_FLOAT}": "the expression ends too early",
		"Syntax error: no viable alternative at input '(<EOF>'":                       "the expression ends too early",
		"Syntax error: mismatched input ')' expecting <EOF>":                          "unexpected ')'",
		"Syntax error: extraneous input 'x' expecting <EOF>":                          "unexpected 'x'",
		"Syntax error: token recognition error at: '= '":                              "unexpected '= '",
		"undeclared reference to 'docs' (in container '')":                            "undeclared reference to 'docs' (in container '')",
	} {
		if got := inWords(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
