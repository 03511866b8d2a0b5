package trait

import "strings"

// Nearest returns the candidate that s most likely meant, or "" when none is near: case and surrounding space are
// free, and one edit (insert, delete, replace, swap of neighbours) is allowed for every three characters, at least
// one. Of equally near candidates the first wins.
func Nearest(s string, candidates []string) string {
	want := []rune(strings.ToLower(strings.TrimSpace(s)))
	if len(want) == 0 || len(want) > maxNearest {
		return ""
	}
	best, bestDistance := "", len(want)
	for _, c := range candidates {
		have := []rune(strings.ToLower(c))
		allowed := max(1, max(len(want), len(have))/3)
		if len(have) > maxNearest || abs(len(have)-len(want)) > allowed {
			continue
		}
		if d := distance(want, have); d <= allowed && d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// maxNearest bounds the work on names that are no names.
const maxNearest = 128

// DidYouMean is the hint of an unknown name: the nearest candidate, or else all of them when they are few.
func DidYouMean(s string, candidates []string) string {
	if n := Nearest(s, candidates); n != "" {
		return "did you mean " + n + "?"
	}
	if len(candidates) == 0 || len(candidates) > 12 {
		return ""
	}
	return "one of " + strings.Join(candidates, ", ")
}

// distance is the Damerau-Levenshtein distance (optimal string alignment).
func distance(a, b []rune) int {
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
