package match

import (
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// A Compiler compiles filters and caches recent programs, so that equal filters share one. Its
// methods are safe for concurrent use.
type Compiler struct {
	most int // bytes

	mu struct {
		sync.Mutex
		programs *simplelru.LRU[Key, *Program]
		bytes    int
	}
}

// maxPrograms bounds the remembered programs, whatever their size.
const maxPrograms = 100_000

// NewCompiler returns a Compiler that caches programs up to a number of bytes.
func NewCompiler(bytes int) *Compiler {
	c := &Compiler{most: bytes}
	var err error
	c.mu.programs, err = simplelru.NewLRU(maxPrograms, func(_ Key, p *Program) { c.mu.bytes -= p.Size() })
	if err != nil {
		panic(err) // the size is a constant
	}
	return c
}

// A Key identifies equal filters.
type Key struct {
	source, db, coll, ops string
	document              string
	deletes               Deletes
	carries               Carries
}

// Key returns the key of a filter.
func (f Filter) Key() Key {
	ops := make([]string, len(f.Ops))
	for i, op := range f.Ops {
		ops[i] = op.String()
	}
	return Key{f.Source, f.DB, f.Coll, strings.Join(ops, ","), f.Document, f.Deletes, f.Carries}
}

// Known returns the program of an equal filter, if it is remembered.
func (c *Compiler) Known(f Filter) (*Program, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.programs.Get(f.Key())
}

// Compile returns the program of an equal filter if it is remembered, and compiles the filter
// otherwise, as the function Compile does.
func (c *Compiler) Compile(f Filter) (*Program, error) {
	if p, ok := c.Known(f); ok {
		return p, nil
	}
	p, err := Compile(f)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.mu.programs.Get(f.Key()); ok { // compiled meanwhile
		return other, nil
	}
	c.mu.programs.Add(f.Key(), p)
	c.mu.bytes += p.Size()
	for c.mu.bytes > c.most {
		c.mu.programs.RemoveOldest()
	}
	return p, nil
}
