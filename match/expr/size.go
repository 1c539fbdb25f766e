package expr

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/mongostream/streamer/fault"
)

// Limits of the patterns of an expression, and of its memory.
const (
	maxPattern = 512     // bytes of a pattern
	maxWide    = 8       // ranges beyond ASCII in a pattern that ignores case: the parser looks at each of their characters
	maxBytes   = 1 << 20 // bound of the estimated memory of a compiled expression
)

// The estimate of the memory of a compiled expression, in bytes. TestSizeIsWhatAProgramTakes
// compares it with the heap.
const (
	bytesOfSimple      = 300  // a comparison that the index decides
	bytesOfProgram     = 300  // any other
	bytesOfNode        = 110  // of the parsed tree
	bytesOfLoop        = 200  // a macro
	bytesOfConstant    = 32   // in addition to its content
	bytesOfPattern     = 1000 // without its instructions
	bytesOfInstruction = 60
	bytesOfRune        = 7 // of a class, in each instruction that has it
	bytesOfClass       = 4 // of each of its runes, once
)

// measure estimates the memory of the parsed expression and rejects what takes too much. It costs
// little whatever the expression is, so that it comes before anything that costs more.
func (c *Checked) measure() error {
	var wrong error
	c.bytes = bytesOfProgram
	ast.PreOrderVisit(c.tree.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		if wrong != nil || c.bytes > maxBytes {
			return
		}
		c.bytes += bytesOfNode
		switch x.Kind() {
		case ast.ComprehensionKind:
			c.bytes += bytesOfLoop
		case ast.LiteralKind:
			c.bytes += bytesOfConstant
			switch v := x.AsLiteral().(type) {
			case types.String:
				c.bytes += len(v)
			case types.Bytes:
				c.bytes += len(v)
			}
		case ast.CallKind:
			wrong = c.measurePattern(x)
		default: // counted as nodes: entries of lists and maps are nodes too
		}
	}))
	switch {
	case wrong != nil:
		return wrong
	case c.bytes > maxBytes:
		return fault.Newf(fault.FilterTooLarge, "the filter would take more than %d KiB of memory", maxBytes>>10)
	}
	return nil
}

// measurePattern adds the pattern of a call of matches(), and rejects one that is too large. Other
// calls, and computed patterns, are left to inspect.
func (c *Checked) measurePattern(x ast.Expr) error {
	text, isText := lastText(x.AsCall())
	if !isText || x.AsCall().FunctionName() != overloads.Matches {
		return nil
	}
	if len(text) > maxPattern {
		return c.invalidAt(x, fmt.Sprintf("the pattern has %d bytes, at most %d", len(text), maxPattern))
	}
	if n := wideRanges(text); n > maxWide {
		return c.invalidAt(x, fmt.Sprintf("the pattern ignores case and has %d ranges beyond ASCII, at most %d", n, maxWide))
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return c.invalidAt(x, err.Error())
	}
	size := patternOf(parsed)
	if size.instructions > maxRegex && size.instructions < 2*maxRegex { // the estimate may be too high: compile the small ones
		if size.instructions, err = regexSize(text); err != nil {
			return c.invalidAt(x, err.Error())
		}
	}
	if size.instructions > maxRegex {
		return c.invalidAt(x, fmt.Sprintf("the pattern compiles to %d instructions, at most %d", size.instructions, maxRegex))
	}
	c.bytes += bytesOfPattern + size.instructions*bytesOfInstruction
	if isAnchored(parsed) {
		c.bytes += size.runes * bytesOfRune
	} else {
		c.bytes += size.classes * bytesOfClass
	}
	return nil
}

// wideRanges counts possible ranges beyond ASCII in classes of a pattern that may ignore case. It
// may count too many.
func wideRanges(pattern string) (n int) {
	flags := false
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "(?")
		if !found {
			break
		}
		set, _, _ := strings.Cut(after, ")")
		set, _, _ = strings.Cut(set, ":")
		flags = flags || strings.Contains(set, "i")
		rest = after
	}
	if !flags {
		return 0
	}
	for i := range len(pattern) - 1 {
		if pattern[i] == '-' && (pattern[i+1] == '\\' || pattern[i+1] >= 0x80) {
			n++
		}
	}
	return n
}

// A patternSize is the size of a compiled regular expression.
type patternSize struct {
	instructions int // at least as many as it will have
	runes        int // of the classes of all instructions
	classes      int // runes of the classes, each class once
}

// isAnchored reports whether a regular expression begins with ^ or \A. Package regexp may compile
// it once more then, with tables of the runes of each instruction.
func isAnchored(re *syntax.Regexp) bool {
	for re.Op == syntax.OpConcat {
		re = re.Sub[0]
	}
	return re.Op == syntax.OpBeginText
}

// patternOf returns the size that a parsed regular expression will have when it is compiled.
// Repetitions multiply their operands; the parser bounds their product by 1000 and the instructions
// by some millions, so that nothing overflows.
func patternOf(re *syntax.Regexp) patternSize {
	s := bodyOf(re)
	s.instructions += 2 // fail and match
	return s
}

func bodyOf(re *syntax.Regexp) (s patternSize) {
	for _, sub := range re.Sub {
		b := bodyOf(sub)
		s = patternSize{s.instructions + b.instructions, s.runes + b.runes, s.classes + b.classes}
	}
	switch re.Op {
	case syntax.OpLiteral:
		return patternSize{instructions: max(1, len(re.Rune)), runes: len(re.Rune)}
	case syntax.OpCharClass:
		return patternSize{1, len(re.Rune), len(re.Rune)}
	case syntax.OpCapture:
		s.instructions += 2
	case syntax.OpStar:
		s.instructions += 2
	case syntax.OpPlus, syntax.OpQuest:
		s.instructions++
	case syntax.OpAlternate:
		s.instructions += len(re.Sub) - 1
	case syntax.OpRepeat:
		s = repeated(s, re.Min, re.Max)
	case syntax.OpConcat:
	default:
		s.instructions = 1
	}
	return s
}

// repeated returns the size of a repetition as it is written out: x{2,} as xx+, x{2,3} as xx(x)?.
func repeated(s patternSize, least, most int) patternSize {
	switch {
	case most < 0 && least == 0:
		s.instructions += 2
	case most < 0:
		s.instructions = s.instructions*least + 1
		s.runes *= least
	case most == 0:
		return patternSize{instructions: 1}
	default:
		s.instructions = s.instructions*most + most - least
		s.runes *= most
	}
	return s
}
