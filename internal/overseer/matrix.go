package overseer

import "writ"

// allowed is the ordered matrix of the traits article: allowed[first] holds every strategy that may follow it in one
// round. Acting on what is not known yet is what it forbids; the unknown runs alone.
var allowed = map[writ.Strategy]writ.Strategy{
	writ.Exploration:  writ.Exploration | writ.Neutral,
	writ.Exploitation: writ.Exploration | writ.Exploitation | writ.Neutral,
	writ.Neutral:      writ.Exploration | writ.Exploitation | writ.Neutral,
	writ.Unknown:      0,
}

// Compatible reports whether an action of the second strategy may follow an accepted one of the first in the same
// round: every pair of their single strategies must be a yes. The empty set counts as {unknown}.
func Compatible(first, second writ.Strategy) bool {
	for _, f := range first.List() {
		for _, s := range second.List() {
			if allowed[f]&s == 0 {
				return false
			}
		}
	}
	return true
}
