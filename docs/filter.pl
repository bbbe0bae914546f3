# What Doxygen reads instead of a file. Lines stay where they are.
#   .md       $$..$$ and $..$ outside code become \f[..\f] and \f$..\f$, so that one Markdown reads well on GitHub and here;
#             a link to the file of a rule becomes one to its page; what stands in <!-- site ... --> is for the site alone
#   sources   a comma inside \source{..} is no separator of arguments; Doxygen does not know the scope Eigen
use strict;
use warnings;
local $/;
my $text = <>;
if ($ARGV =~ /\.md$/) {
  $text =~ s/<!-- site\n(.*?)-->\n/\n$1\n/gs;
  my @parts = split /(^```.*?^```[^\n]*$|`[^`\n]+`)/ms, $text;    # odd ones are code
  for my $i (grep { $_ % 2 == 0 } 0 .. $#parts) {
    $parts[$i] =~ s/\$\$(.+?)\$\$/\\f[$1\\f]/gs;
    $parts[$i] =~ s/(?<![\\\$])\$(?![\s\$])([^\$\n]+?)(?<![\s\\])\$/\\f\$$1\\f\$/g;
  }
  $text = join '', @parts;
  $text =~ s{\[`(\w+)`\]\(reference/rules/(\w+)\.hpp\)}{[$1](\@ref rule_$2)}g;
} else {
  $text =~ s/(\\source\{)([^}]*)(\})/my ($a, $b, $c) = ($1, $2, $3); $b =~ s{,}{\\,}g; "$a$b$c"/ge;
  $text =~ s/^(template <[^\n]*?> struct )Eigen::(NumTraits<.*?^\};)/namespace Eigen { $1$2 }/gms;
}
print $text;
